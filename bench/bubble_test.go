package bench

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// newBubbleFleet starts limiters around a Redis that is embedded in a synctest
// bubble, where time passes only when nobody has anything to do. Each message
// to Redis takes lag. It returns when they know of each other.
func newBubbleFleet(t *testing.T, size int, lag time.Duration, o hybrid.Options) []*hybrid.Limiter {
	t.Helper()
	// Last of all, let dials that go-redis makes in the background end.
	t.Cleanup(func() { time.Sleep(10 * time.Second) })
	server := miniredis.NewMiniRedis()
	t.Cleanup(server.Close)
	server.ClockTTL(true) // keys expire by the bubble's time
	nodes := make([]*hybrid.Limiter, size)
	for i := range nodes {
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", // never dialled; a name would be looked up outside of the bubble
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				return newWire(server, lag)
			},
			ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true,
		})
		t.Cleanup(func() { rdb.Close() })
		l, err := hybrid.New(rdb, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		nodes[i] = l
	}
	time.Sleep(3 * time.Second) // some heartbeats
	for _, l := range nodes {
		if s := l.State(); s.Mode != hybrid.Synced || s.Nodes != size {
			t.Fatalf("%v, want %d nodes", s, size)
		}
	}
	return nodes
}

// newWire connects to the server. A pipe has no buffer: a client that writes a
// long pipeline before it reads would wait for ever for a server that wants to
// be read. So replies are queued on their way, as a kernel would do.
func newWire(server *miniredis.Miniredis, lag time.Duration) (net.Conn, error) {
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
