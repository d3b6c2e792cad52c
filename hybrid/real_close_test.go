package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Redis stops for 0.4 s in the moment in which a process ends that has 2 s to do so:
// that is more than the limiter needs to take it for away. All is reported.
//
// Fault 83: everything is reported within the context.
func TestRealCloseWhileRedisStops(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("noticed before %v", known), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			l := realNode(t, srv.Addr(), hybrid.Options{})
			if err := srv.Freeze(); err != nil {
				t.Fatal(err)
			}
			stop := 400 * time.Millisecond
			wantAdmitted(t, l, "k", hundred, 40, 40)
			if known {
				eventually(t, "degraded", allModes([]*hybrid.Limiter{l}, hybrid.Degraded))
			}
			thawed := make(chan error, 1)
			time.AfterFunc(stop, func() { thawed <- srv.Thaw() })
			ctx, cancel := context.WithTimeout(bg, 2*time.Second)
			defer cancel()
			if err := l.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			if err := <-thawed; err != nil {
				t.Fatal(err)
			}
			conserved(t, l, true)
			admin := dial(t, srv.Addr())
			if got := totalIn(t, admin, counterKey(hundred, "k")); got != 40 {
				t.Errorf("Redis counts %d of 40", got)
			}
			if live := admin.ZCard(bg, "hl:1:{0}:nodes:1").Val(); live != 0 {
				t.Errorf("%d live nodes", live)
			}
		})
	}
}

// A Redis that stays away is waited for as long as ctx says, no longer; with nothing
// to report it is not waited for at all.
//
// Fault 83: Close keeps to its context.
func TestRealCloseWhileRedisStaysAway(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	idle, busy := realNode(t, srv.Addr(), hybrid.Options{}), realNode(t, srv.Addr(), hybrid.Options{})
	srv.Kill()
	nodes := []*hybrid.Limiter{idle, busy}
	eventually(t, "degraded", allModes(nodes, hybrid.Degraded))
	wantAdmitted(t, busy, "k", hundred, 5, 5)
	for _, l := range nodes {
		const most = 1500 * time.Millisecond
		ctx, cancel := context.WithTimeout(bg, most)
		begun := time.Now()
		err := l.Shutdown(ctx)
		took := time.Since(begun)
		cancel()
		var unavailable *hybrid.UnavailableError
		if l == idle && err != nil || l == busy && (!errors.As(err, &unavailable) || !strings.Contains(err.Error(), "5 admitted units")) {
			t.Errorf("%v: want an UnavailableError and what is lost, or none if nothing is", err)
		}
		if l == busy && took < most || took > most+3*time.Second {
			t.Errorf("it took %v", took)
		}
		if l == idle && took > most/2 {
			t.Errorf("with nothing to report it took %v", took)
		}
	}
}

// The connection for notices is broken, and the client's Dialer hangs without regard to its context.
// Close ends with its own.
func TestRealCloseWhileTheDialerHangs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var hangs atomic.Bool
	release := make(chan bool)
	o := clientOptions(srv.Addr())
	o.Dialer = func(_ context.Context, network, addr string) (net.Conn, error) {
		if hangs.Load() {
			<-release
			return nil, net.ErrClosed
		}
		return net.Dial(network, addr)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { rdb.Close() })
	l := newLimiter(t, rdb, hybrid.Options{})
	listening(t, rdb, 1)
	hangs.Store(true)
	if _, err := srv.Do("CLIENT", "KILL", "TYPE", "pubsub"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node does not listen", func() bool { return len(subscribers(t, srv)) == 0 })
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(bg, 500*time.Millisecond)
		defer cancel()
		ended <- l.Shutdown(ctx)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("Close does not end with its context")
	}
	close(release)
}
