package hybrid_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// proxied starts a real server and a proxy in front of it.
func proxied(t testing.TB, args ...string) (*redistest.Server, *redistest.Proxy) {
	t.Helper()
	srv := redistest.Start(t, args...)
	p, err := redistest.NewProxy(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return srv, p
}

// settled waits until l is well and nothing is pending.
func settled(t testing.TB, l *hybrid.Limiter) {
	t.Helper()
	eventually(t, "synced, nothing pending", func() bool {
		return l.State().Mode == hybrid.Synced && l.Stats().PendingUnits == 0
	})
	conserved(t, l, true)
}

// settles waits until l is well and nothing is pending, and checks that Redis
// counts exactly what b has recorded.
func (b *books) settles(t testing.TB, l *hybrid.Limiter, addr string) {
	t.Helper()
	b.settlesIn(t, l, addr, 0)
}

// settlesIn is settles for a number of shards; 0 means the default.
func (b *books) settlesIn(t testing.TB, l *hybrid.Limiter, addr string, shards int) {
	t.Helper()
	settled(t, l)
	admin := dial(t, addr)
	b.matchIn(t, admin, shards)
	if got := ledgerSum(t, admin); got != b.sum() {
		t.Errorf("the ledgers add up to %d, admitted were %d", got, b.sum())
	}
}

// Everything arrives twice: batches, heartbeats, whole pipelines.
//
// Fault 7: totals on a real server are exact all the same.
func TestRealDeliveredTwice(t *testing.T) {
	t.Parallel()
	srv, p := proxied(t)
	l := realNode(t, p.Addr(), quickPatient)
	p.Double(1 << 30)
	var all books
	deadline := time.Now().Add(time.Minute)
	for i := 0; (p.Doubled() < 100 || l.Stats().Batches < 50) && time.Now().Before(deadline); i++ { // heartbeats count, too
		all.take(l, fmt.Sprint("key", i%30), 1+int64(i%3))
		<-time.After(time.Millisecond)
	}
	flush(t, l)
	if s := l.Stats(); p.Doubled() < 100 || s.Losses != 0 || s.BadReplies != 0 || s.Failures != 0 || s.Batches < 50 {
		t.Errorf("%d exchanges arrived twice: %+v", p.Doubled(), s)
	}
	p.Double(0)
	all.settles(t, l, srv.Addr())
}

// Connections break in the middle of pipelines, on the way there and back.
//
// Fault 9: totals on a real server are exact all the same.
func TestRealPipelinesTorn(t *testing.T) {
	t.Parallel()
	srv, p := proxied(t)
	many := quick
	many.Shards = 16 // so that a pipeline has many calls
	l := realNode(t, p.Addr(), many)
	rng := rand.New(rand.NewPCG(9, 2))
	var all books
	// A tear may hit a heartbeat as well: go on until enough batches were hit.
	for deadline := time.Now().Add(time.Minute); p.Torn() < 100 || l.Stats().ResentBatches < 50; {
		if time.Now().After(deadline) {
			t.Fatalf("only %d exchanges were torn in time, and %d batches sent again", p.Torn(), l.Stats().ResentBatches)
		}
		for i := range 40 {
			all.take(l, fmt.Sprint("key", i), 1)
		}
		// Every other time only: a node that is cut off probes once in a round, and would
		// never come back if each probe were torn.
		if rng.IntN(2) == 0 {
			p.Tear(rng.IntN(6000), -rng.IntN(2000))
		} else {
			p.Tear()
		}
		_ = l.Flush(bg) // the tear may hit the probe as well, and end it
		<-time.After(5 * time.Millisecond)
	}
	p.Tear()
	all.settlesIn(t, l, srv.Addr(), many.Shards)
}

// A server that is frozen before a limiter comes: dials are accepted by the
// kernel, and greetings are never answered.
//
// Faults 3, 4: calls end at their deadline, few are under way, and everything is reported
// once the server goes on.
func TestRealFrozenAtStart(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	srv.FreezeOrSkip(t)
	co := clientOptions(srv.Addr())
	co.DialTimeout = 200 * time.Millisecond
	l := newLimiter(t, client(t, co), hybrid.Options{CommandTimeout: 200 * time.Millisecond, MaxBackoff: 300 * time.Millisecond})
	var all books
	for i := range 100 {
		all.take(l, fmt.Sprint("key", i), 3)
	}
	err := l.Flush(bg)
	var unavailable *hybrid.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Reason != "timeout" {
		t.Errorf("flush: %v, want a timeout", err)
	}
	eventually(t, "several probes have failed", func() bool { return l.Stats().Failures >= 6 })
	wantMode(t, l, hybrid.Degraded)
	if s := l.Stats(); s.Batches != 0 || s.PendingUnits != 300 {
		t.Errorf("%+v, want nothing sent and 300 units pending", s)
	}
	if err := srv.Thaw(); err != nil {
		t.Fatal(err)
	}
	all.settles(t, l, srv.Addr())
}

// Every exchange is held back for a random time, up to many times the
// deadline, while checks go on.
//
// Fault 10: goroutines and calls stay few, units gather by key, and everything
// is booked in the end.
func TestRealSlowRedis(t *testing.T) {
	srv, p := proxied(t)
	l := realNode(t, p.Addr(), hybrid.Options{MaxBackoff: time.Second})
	rng := rand.New(rand.NewPCG(10, 2))
	var all books
	for i := range 50 { // all keys are in memory, and the pool is warm
		all.take(l, fmt.Sprint("key", i), 1)
	}
	flush(t, l)
	before, goroutines, most := l.Stats(), runtime.NumGoroutine(), 0
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	const checks = 4000
	for i := range checks {
		switch i % 50 {
		case 0: // mostly within the deadline of 250 ms, at times far beyond
			p.Delay(time.Duration(100+rng.IntN(100)) * time.Millisecond)
		case 40:
			p.Delay(time.Duration(rng.IntN(5000)) * time.Millisecond)
		}
		all.take(l, fmt.Sprint("key", i%50), 1)
		most = max(most, runtime.NumGoroutine())
		<-tick.C
	}
	s := l.Stats()
	// Each of at most four pipelines and a heartbeat has a goroutine and, in
	// go-redis and in the proxy, a few more.
	if most > goroutines+60 {
		t.Errorf("%d goroutines at the most, %d before", most, goroutines)
	}
	if keys := s.KeysSynced - before.KeysSynced; keys > checks/2 || s.LiveCounters != 50 {
		t.Errorf("%d operations for %d checks of 50 keys, %d counters", keys, checks, s.LiveCounters)
	}
	if s.Failures == before.Failures {
		t.Error("nothing failed: the fault was not injected")
	}
	p.Delay(0)
	all.settles(t, l, srv.Addr())
}
