// Package bubble puts a Redis into a bubble of testing/synctest: an embedded one, whose
// clients reach it without the network, which a bubble cannot see.
package bubble

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Start starts a Redis for the length of a test that runs in a bubble. Its time is the
// bubble's: it passes only when nobody has anything to do.
func Start(tb testing.TB) *miniredis.Miniredis {
	tb.Helper()
	// Last of all, let dials that go-redis makes in the background end.
	tb.Cleanup(func() { time.Sleep(10 * time.Second) })
	server := miniredis.NewMiniRedis()
	tb.Cleanup(server.Close)
	server.ClockTTL(true)
	return server
}

// Client returns a client of a server in the same bubble. Each message takes lag.
func Client(tb testing.TB, server *miniredis.Miniredis, lag time.Duration) *redis.Client {
	tb.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", // never dialled; a name would be looked up outside of the bubble
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return wire(server, lag)
		},
		ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true,
	})
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

// wire connects to the server. A pipe has no buffer: a client that writes a
// long pipeline before it reads would wait for ever for a server that wants to
// be read. So replies are queued on their way, as a kernel would do.
func wire(server *miniredis.Miniredis, lag time.Duration) (net.Conn, error) {
	far, err := server.Dial()
	if err != nil {
		return nil, err
	}
	client, near := net.Pipe()
	replies := make(chan []byte, 1<<12)
	go func() {
		defer far.Close()
		b := make([]byte, 256<<10)
		for {
			n, err := near.Read(b)
			if err != nil {
				return
			}
			time.Sleep(lag)
			if _, err := far.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(replies)
		for {
			b := make([]byte, 32<<10)
			n, err := far.Read(b)
			if err != nil {
				return
			}
			replies <- b[:n]
		}
	}()
	go func() {
		defer near.Close()
		for b := range replies {
			if _, err := near.Write(b); err != nil {
				far.Close() // and with it the queue, which is emptied below
			}
		}
	}()
	return client, nil
}
