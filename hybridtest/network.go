package hybridtest

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
)

// network is the way from all limiters to Redis. It is safe for concurrent use.
type network struct {
	addr string
	tick func() // sets the time of Redis

	mu    sync.Mutex // protects what follows
	down  bool
	conns map[*conn]struct{}
}

// conn is a connection of a limiter's client.
type conn struct {
	net.Conn
	of *network
}

// errRefused is what a port that nobody listens on answers.
var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// dial is the clients' dialer.
func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if n.isDown() {
		return nil, errRefused
	}
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", n.addr)
	if err != nil {
		return nil, err
	}
	c := &conn{raw, n}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down { // meanwhile
		_ = raw.Close()
		return nil, errRefused
	}
	if n.conns == nil {
		n.conns = map[*conn]struct{}{}
	}
	n.conns[c] = struct{}{}
	return c, nil
}

// Write sends a command, which Redis executes at the time that it is then.
func (c *conn) Write(b []byte) (int, error) {
	c.of.tick()
	return c.Conn.Write(b)
}

// Close closes the connection.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (n *network) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// cut breaks all connections, and refuses others.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for c := range n.conns {
		_ = c.Conn.Close()
	}
}

// heal lets connections be made again.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}
