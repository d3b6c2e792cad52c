package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
)

// Far is a wire to a server that is far away: every byte arrives half of a round trip after it was
// sent, in order, and a new connection takes a round trip of its own, as TCP does. It knows nothing
// of what it carries: subscriptions and TLS pass.
type Far struct {
	ln     net.Listener
	target string
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	trip   atomic.Int64 // a round trip, ns
	jitter atomic.Int64 // up to so much more on each way, ns
	stall  atomic.Int64 // nothing arrives before this, ns of the system clock
	hung   atomic.Bool
}

// NewFar starts a wire on a free loopback port to target, a "host:port". The caller must Close it.
func NewFar(target string, trip time.Duration) (*Far, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	f := &Far{ln: ln, target: target}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.Move(trip, 0)
	f.wg.Go(f.accept)
	return f, nil
}

// Addr is where clients connect.
func (f *Far) Addr() string { return f.ln.Addr().String() }

// Close ends all connections, and waits for that.
func (f *Far) Close() {
	f.cancel()
	f.ln.Close()
	f.wg.Wait()
}

// Move changes the distance: how long a round trip takes, and up to how much more each way.
func (f *Far) Move(trip, jitter time.Duration) {
	f.trip.Store(int64(trip))
	f.jitter.Store(int64(jitter))
}

// Stall keeps back for so long what is under way and what is sent meanwhile.
func (f *Far) Stall(d time.Duration) { f.stall.Store(int64(clock.System{}.Now() + d)) }

// Hang keeps back everything until it is called with false.
func (f *Far) Hang(on bool) { f.hung.Store(on) }

func (f *Far) accept() {
	for {
		client, err := f.ln.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.carry(client) })
	}
}

// carry passes on what one connection says, until one side ends it.
func (f *Far) carry(client net.Conn) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	server, err := net.Dial("tcp", f.target)
	if err != nil {
		client.Close()
		return
	}
	context.AfterFunc(ctx, func() {
		client.Close()
		server.Close()
	})
	opened := clock.System{}.Now() + time.Duration(f.trip.Load())
	var wg sync.WaitGroup
	for _, way := range []struct {
		from, to net.Conn
	}{{client, server}, {server, client}} {
		parcels := make(chan parcel, 1<<12)
		wg.Go(func() {
			defer cancel()
			f.load(way.from, opened, parcels)
		})
		wg.Go(func() {
			defer cancel()
			f.deliver(ctx, way.to, parcels)
		})
	}
	wg.Wait()
}

// parcel is bytes that are under way.
type parcel struct {
	at   time.Duration // when they arrive
	data []byte
}

// load takes what one side sends. What it has written before the connection is open arrives as
// if it had been written then.
func (f *Far) load(from net.Conn, opened time.Duration, parcels chan<- parcel) {
	defer close(parcels)
	for buf := make([]byte, 1<<16); ; {
		n, err := from.Read(buf)
		if n > 0 {
			at := max(clock.System{}.Now(), opened) + time.Duration(f.trip.Load()/2+rand.Int64N(f.jitter.Load()+1))
			parcels <- parcel{at, append([]byte(nil), buf[:n]...)}
		}
		if err != nil {
			return
		}
	}
}

// deliver hands over what arrives.
func (f *Far) deliver(ctx context.Context, to net.Conn, parcels <-chan parcel) {
	for p := range parcels {
		if !sleep(ctx, p.at-clock.System{}.Now()) {
			continue // so that load does not wait for ever
		}
		for f.hung.Load() || int64(clock.System{}.Now()) < f.stall.Load() {
			if !sleep(ctx, time.Millisecond) {
				break
			}
		}
		if _, err := to.Write(p.data); err != nil {
			return
		}
	}
}
