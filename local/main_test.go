package local

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is where manual clocks begin: far from zero, as real ones do.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newLimiter(tb testing.TB, o Options) *Limiter {
	tb.Helper()
	l, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	return l
}

// newTable returns a table on a clock that stands still.
func newTable(tb testing.TB, o TableOptions) *Table {
	tb.Helper()
	if o.Clock == nil {
		o.Clock = clock.NewManual(start)
	}
	t, err := NewTable(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(t.Close)
	return t
}

// allow is check for those without a table.
func (c *Counter) allow(now, n int64, rule *limit.Rule) (allowed bool, src limit.Source, how manner) {
	return c.check(now, n, rule, 0)
}

func (c *Counter) take(now, n int64, rule *limit.Rule) (limit.Result, bool) {
	return c.Take(now, n, rule)
}

// peek tells what take would answer, and consumes nothing.
func (c *Counter) peek(now, n int64, rule *limit.Rule) (limit.Result, bool) {
	res, how := c.ask(now, n, rule, false, 0)
	return res, how != gone
}

// names returns n keys.
func names(prefix string, n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("%s %d", prefix, i)
	}
	return s
}

// slow is a funnel that leaks nothing worth mentioning while a test runs.
func slow(capacity int64) *limit.Rule {
	return limit.Must(limit.Funnel("slow", capacity, 1, 24*time.Hour/time.Duration(max(capacity, 1))*10))
}

// until waits for what other goroutines are about to bring about.
func until(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(deadline) {
			tb.Fatalf("still waiting for %s after 20 s", what)
		}
	}
}

// settle waits until the cache has decided on everything offered to it and
// the side table has been relieved of what it took.
func settle(tb testing.TB, t *Table) {
	tb.Helper()
	until(tb, "the table to settle", func() bool {
		if len(t.fresh) > 0 {
			return false
		}
		t.cache.Wait()
		idle := t.sweepAll()
		return len(t.fresh) == 0 && idle
	})
}

// sweepAll cleans the whole side table once and reports whether what is left
// is not in the cache.
func (t *Table) sweepAll() bool {
	clean := true
	for i := range t.side {
		sh := &t.side[i]
		sh.mu.Lock()
		for _, c := range sh.counters {
			if !t.promoteLocked(sh, c) && t.view.Load().holds(c) {
				clean = false
			}
		}
		sh.mu.Unlock()
	}
	return clean
}

// check fails if the table is not as it must be between two calls.
func check(tb testing.TB, t *Table) {
	tb.Helper()
	settle(tb, t)
	var side, live int64
	var s TableStats
	// What nobody would miss may be forgotten at any time, and be counted here and not there.
	for range 100 {
		side, live, s = checkSide(tb, t), checkLive(tb, t), t.Stats()
		if s.Side == side && s.Live == live {
			return
		}
		runtime.Gosched()
	}
	tb.Errorf("Stats say %d counters in the side table and %d live ones, there are %d and %d", s.Side, s.Live, side, live)
}

// checkSide looks for disorder in the side table and counts what is in it.
func checkSide(tb testing.TB, t *Table) (counters int64) {
	tb.Helper()
	for i := range t.side {
		sh := &t.side[i]
		sh.mu.Lock()
		for id, c := range sh.counters {
			counters++
			switch {
			case c.isDead():
				tb.Errorf("dead counter of %q in the side table", id.key)
			case c.ident() != id || t.shard(c.hash) != sh:
				tb.Errorf("counter of %q is filed under %q", c.Key(), id.key)
			}
		}
		if sh.hold != 0 {
			tb.Errorf("shard %d is still held", i)
		}
		sh.mu.Unlock()
	}
	return counters
}

// checkLive looks for keys with two counters and counts those that are alive.
func checkLive(tb testing.TB, t *Table) int64 {
	tb.Helper()
	seen := make(map[ident]*Counter)
	t.Range(func(c *Counter) bool {
		if twin := seen[c.ident()]; twin != nil && twin != c {
			tb.Errorf("%q has two live counters", c.Key())
		}
		seen[c.ident()] = c
		return true
	})
	return int64(len(seen))
}

// absorb is absorbLocked of two counters that nobody else has.
func (c *Counter) absorb(d *Counter, now int64) {
	c.lock()
	defer c.mu.Unlock()
	d.lock()
	defer d.mu.Unlock()
	c.absorbLocked(d, now)
}

// pace has counters report once in d, if their rule lets them.
func pace(d time.Duration) Pace { return Pace{Interval: d / 5, MaxLag: d} }
