package server

import (
	"net"
	"sync"
	"sync/atomic"
)

// conns is a listener that knows its connections. grpc waits for one that sends nothing for
// two minutes, even when it is told to stop at once: the last reports to Redis would come too
// late. Whoever probes a port by connecting to it has such a connection.
type conns struct {
	net.Listener

	mu   sync.Mutex // protects what follows
	open map[*tracked]struct{}
	over bool // nobody is let in any more
}

func track(ln net.Listener) *conns {
	return &conns{Listener: ln, open: map[*tracked]struct{}{}}
}

// Accept returns the next connection.
func (cs *conns) Accept() (net.Conn, error) {
	raw, err := cs.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &tracked{Conn: raw, of: cs}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.over {
		_ = raw.Close() // whoever reads it hears so
		return c, nil
	}
	cs.open[c] = struct{}{}
	return c, nil
}

// end closes the connections that have sent nothing, or all, and those that come later.
func (cs *conns) end(all bool) {
	cs.mu.Lock()
	cs.over = true
	var list []*tracked
	for c := range cs.open {
		if all || !c.heard.Load() {
			list = append(list, c)
		}
	}
	cs.mu.Unlock()
	for _, c := range list {
		_ = c.Close()
	}
}

// tracked is a connection of conns.
type tracked struct {
	net.Conn
	of    *conns
	heard atomic.Bool // something was received
}

// Read receives.
func (c *tracked) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	return n, err
}

// Close ends the connection.
func (c *tracked) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
