//go:build !race

package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Not under the race detector: it allocates by itself.

// A check of a window needs no memory in a bucket that has units, whether it is reported
// meanwhile or not, nor in a new one when a window has gone by.
func TestChecksOfWindowsDoNotAllocate(t *testing.T) {
	now := int64(1e12)
	for _, r := range []*limit.Rule{windowRule(t, 1e6, time.Hour, 10), windowRule(t, 1e6, time.Hour, 300), limit.Must(limit.FixedWindow("f", 1e6, time.Hour))} {
		c := New("k", r, 0, new(Group), now) // leases are made now and then
		for range 301 {
			c.allow(now, 1, r)
			now += int64(arith.Of(r).Width)
		}
		none := func(what string, f func()) {
			t.Helper()
			if n := testing.AllocsPerRun(200, f); n > 0 {
				t.Errorf("%v in %d buckets: %v allocations %s", r, arith.Of(r).Buckets, n, what)
			}
		}
		none("in a bucket", func() { c.allow(now, 1, r) })
		none("to describe it", func() { c.Ask(now, 1, r, true) })
		none("to refuse", func() { c.Ask(now, 1e6, r, true) })
		none("in a new bucket", func() {
			now += int64(arith.Of(r).Width)
			c.allow(now, 1, r)
		})
		shared := NewAlone("k", r, newTestLink(), now)
		shared.allow(now, 1, r)
		rep, _ := shared.collect(now, Normal)
		none("under way", func() { shared.allow(now, 1, r) })
		shared.Settle(now, report.Answer{Rule: r, State: report.State{Buckets: rep.Buckets}, At: now, ServerNow: now})
		none("after an answer", func() { shared.allow(now, 1, r) })
	}
}

// When a period of a calendar begins one key needs memory for its bounds, and no other.
func TestKeysChangeToAPeriodWithoutMemory(t *testing.T) {
	r := limit.Must(limit.Quota("q", 1e6, limit.Calendar{Unit: limit.Month}))
	now, keys := int64(1e18), make([]*Counter, 200)
	for i := range keys {
		keys[i] = New("k", r, 0, new(Group), now)
		keys[i].allow(now, 1, r)
	}
	for range 3 {
		now = arith.Of(r).Ends(arith.Of(r).Index(now))
		keys[0].allow(now, 1, r)
		i := 0
		if n := testing.AllocsPerRun(len(keys)-2, func() {
			i++
			keys[i].allow(now, 1, r)
		}); n > 0 {
			t.Errorf("%v allocations for each key", n)
		}
	}
}
