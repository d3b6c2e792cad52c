package resp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// firstBuffer is enough for some tens of commands. A buffer grows up to two commands of
	// the largest size.
	firstBuffer = 4 << 10
	keepReply   = 64 << 10 // answers are sent when they are that long, if not before
	// lingerFor and lingerBytes bound what is read, and thrown away, of a client that is
	// sent away: if nothing was read, the system would reset the connection, and the
	// client would never see why.
	lingerFor   = time.Second
	lingerBytes = 1 << 20
)

// wakeUp is a deadline that ends a Read that waits.
var wakeUp = time.Unix(1, 0)

// conn is a connection of a client, and what the server knows of it.
type conn struct {
	net.Conn
	server *Server
	once   sync.Once       // of closing
	ctx    context.Context // ends with the connection: checks that wait for Redis are given up
	cancel context.CancelFunc
	in     parser
	reply
	session
	tx   transaction
	err  error // why nothing more can be received
	over bool  // nothing more is to be answered

	stopping atomic.Bool
}

// serve answers commands until the connection ends.
func (c *conn) serve() {
	defer c.Close()
	for !c.over {
		c.in.unknown = c.server.o.Password != "" && !c.known
		args, bad := c.in.next()
		switch {
		case bad != nil:
			c.flush()
			c.refuse(bad)
			return
		case args != nil:
			c.server.serve(c, args)
			c.flushIfLarge()
		default:
			if c.flush(); !c.receive() {
				return
			}
		}
	}
	c.flush()
}

// receive waits for something to parse. It reports false when nothing more will come.
func (c *conn) receive() bool {
	space := c.in.room()
	if c.err != nil || c.stopping.Load() && len(c.in.buf) == 0 { // between two commands
		return false
	}
	c.await()
	n, err := c.Conn.Read(space)
	c.in.received(n)
	if c.err = err; errors.Is(err, os.ErrDeadlineExceeded) && !c.stopping.Load() {
		c.server.count.idle.Add(1)
		c.server.o.Logger.Debug("resp: a connection is idle, and ended", "client", c.RemoteAddr().String())
	}
	return n > 0 || err == nil
}

// flush sends the answers. If it fails the next call of receive does, too.
func (c *conn) flush() {
	if len(c.out) == 0 {
		return
	}
	if _, err := c.Write(c.out); err != nil {
		c.err, c.over = err, true
	}
	if c.out = c.out[:0]; cap(c.out) > keepReply {
		c.out = nil
	}
}

// flushIfLarge bounds the answers that are kept, however many commands have been received.
func (c *conn) flushIfLarge() {
	if len(c.out) > keepReply {
		c.flush()
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

// Write sends answers, each time for Options.IdleTimeout at most: a client that takes none would keep its
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
	c.once.Do(func() { c.cancel(); c.server.forget(c) })
	return err
}
