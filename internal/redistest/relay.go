package redistest

import (
	"context"
	"io"
	"net"
	"sync"
)

// Relay passes on what the clients of a listener and a server say to each other.
type Relay struct {
	ln     net.Listener
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// NewRelay serves the clients of a listener with target, a "host:port". The caller must Close it,
// which closes the listener, too.
func NewRelay(ln net.Listener, target string) *Relay {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Relay{ln: ln, cancel: cancel}
	r.wg.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { join(ctx, client, target) })
		}
	})
	return r
}

// Addr is where clients connect.
func (r *Relay) Addr() string { return r.ln.Addr().String() }

// Close ends all connections, and waits for that.
func (r *Relay) Close() {
	r.cancel()
	r.ln.Close()
	r.wg.Wait()
}

// join passes on what two sides say, until one ends.
func join(ctx context.Context, client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(both, func() {
		client.Close()
		server.Close()
	})()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		wg.Go(func() {
			defer cancel()
			_, _ = io.Copy(way[1], way[0]) // an error ends it as well
		})
	}
	wg.Wait()
}
