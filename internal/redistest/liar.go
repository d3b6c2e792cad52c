package redistest

import (
	"bytes"
	"context"
	"io"
	"net"
	"time"
)

// Liar is a server that has its answer ready whatever it is asked, and closes
// the connection when it has said it.
type Liar struct {
	Greeting []byte // answer to the first thing a connection says; nil: it lies at once
	Lie      []byte // answer to everything else
	Chunk    int    // bytes per read; 0: all
}

// Dial returns a connection to the liar.
func (l *Liar) Dial(context.Context, string, string) (net.Conn, error) {
	return &lyingConn{liar: l, lying: l.Greeting == nil}, nil
}

type lyingConn struct {
	net.Conn // nil: nothing else is asked of it
	liar     *Liar
	lying    bool
	out      bytes.Reader
}

func (c *lyingConn) Write(p []byte) (int, error) {
	answer := c.liar.Greeting
	if c.lying {
		answer = c.liar.Lie
	}
	c.lying = true
	rest, _ := io.ReadAll(&c.out)
	c.out.Reset(append(rest, answer...))
	return len(p), nil
}

func (c *lyingConn) Read(p []byte) (int, error) {
	if k := c.liar.Chunk; k > 0 && k < len(p) {
		p = p[:k]
	}
	return c.out.Read(p)
}

func (*lyingConn) Close() error                     { return nil }
func (*lyingConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*lyingConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*lyingConn) SetDeadline(time.Time) error      { return nil }
func (*lyingConn) SetReadDeadline(time.Time) error  { return nil }
func (*lyingConn) SetWriteDeadline(time.Time) error { return nil }

// Greeting is what Redis answers to HELLO 3.
var Greeting = []byte("%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n")
