package resp

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// firstBuffer is enough for some tens of commands. A buffer grows up to about two
	// commands of the largest size.
	firstBuffer = 4 << 10
	// lingerFor and lingerBytes bound what is read, and thrown away, of a client that is
	// sent away: if nothing was read, the system would reset the connection, and the
	// client would never see why.
	lingerFor   = time.Second
	lingerBytes = 1 << 20
)

// wakeUp is a deadline that ends a Read that waits.
var wakeUp = time.Unix(1, 0)

// conn is a connection of a client. redcon reads whole commands from it, and only such as
// [frame] lets through.
type conn struct {
	net.Conn
	server *Server
	once   sync.Once // of closing

	buf   []byte // what has been received
	from  int    // where redcon reads on
	ready int    // up to where buf holds whole commands
	frame frame
	bad   error // what is wrong with the command behind ready
	err   error // why nothing more can be received

	stopping atomic.Bool
}

// Read is called by redcon after it has answered all that it has read before.
func (c *conn) Read(p []byte) (int, error) {
	for c.from == c.ready {
		switch {
		case c.bad != nil:
			c.refuse(c.bad)
			return 0, io.EOF
		case c.stopping.Load() && c.ready == len(c.buf):
			return 0, io.EOF // between two commands
		case c.err != nil:
			return 0, c.err
		}
		c.fill()
	}
	n := copy(p, c.buf[c.from:c.ready])
	c.from += n
	return n, nil
}

// fill receives something. All that was ready has been read.
func (c *conn) fill() {
	c.buf = c.buf[:copy(c.buf, c.buf[c.ready:])]
	c.from, c.ready = 0, 0
	if len(c.buf) == cap(c.buf) {
		grown := make([]byte, len(c.buf), max(firstBuffer, 2*cap(c.buf)))
		copy(grown, c.buf)
		c.buf = grown
	}
	seen := len(c.buf)
	c.await()
	n, err := c.Conn.Read(c.buf[seen:cap(c.buf)])
	c.buf = c.buf[:seen+n]
	complete, bad := c.frame.scan(c.buf[seen:])
	if complete >= 0 {
		c.ready = seen + complete
	}
	c.bad = bad
	if c.err = err; errors.Is(err, os.ErrDeadlineExceeded) {
		c.err = io.EOF
		if !c.stopping.Load() {
			c.server.count.idle.Add(1)
			c.server.o.Logger.Debug("resp: a connection is idle, and ended", "client", c.RemoteAddr().String())
		}
	}
}

// await bounds the next Read by Options.IdleTimeout.
func (c *conn) await() {
	if c.server.o.IdleTimeout == 0 {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(c.server.o.IdleTimeout)) // an error is one of a connection that has ended
	// stop sets its deadline after it has set stopping: if that one was overwritten just now, it
	// is seen here.
	if c.stopping.Load() {
		_ = c.SetReadDeadline(wakeUp)
	}
}

// Write sends answers, for Options.IdleTimeout at most: a client that takes none would keep its
// connection for ever.
func (c *conn) Write(p []byte) (int, error) {
	if c.server.o.IdleTimeout > 0 {
		_ = c.SetWriteDeadline(time.Now().Add(c.server.o.IdleTimeout)) // as in await
	}
	n, err := c.Conn.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.server.count.idle.Add(1)
		c.server.o.Logger.Debug("resp: a client takes no answers, and its connection is ended", "client", c.RemoteAddr().String())
	}
	return n, err
}

// refuse tells the client why its connection ends.
func (c *conn) refuse(why error) {
	c.server.count.protocol.Add(1)
	c.server.o.Logger.Warn("resp: a client is sent away", "client", c.RemoteAddr().String(), "error", why)
	if err := c.SetDeadline(time.Now().Add(lingerFor)); err != nil {
		return
	}
	if _, err := io.WriteString(c.Conn, "-ERR Protocol error: "+why.Error()+"\r\n"); err != nil {
		return
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(c.Conn, lingerBytes))
	}
}

// stop ends the connection after the commands that have been received, at once if there are
// none.
func (c *conn) stop() {
	c.stopping.Store(true)
	_ = c.SetReadDeadline(wakeUp) // an error is one of a connection that has ended
}

// Close ends the connection. It counts until it has ended.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.server.forget(c) })
	return err
}
