//go:build !race

package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Not under the race detector: it makes pools lose items, and they are allocated anew.

// A window that is asked while it is reported again and again needs no memory for
// that, however many buckets it has.
func TestFoldingDoesNotAllocate(t *testing.T) {
	now := int64(1e12)
	for _, r := range []*limit.Rule{windowRule(t, 1e6, time.Hour, 10), windowRule(t, 1e6, time.Hour, 3), limit.Must(limit.FixedWindow("f", 1e6, time.Hour))} {
		c := NewAlone("k", r, newTestLink(), now)
		c.allow(now, 1, r)
		rep, _ := c.Collect(now, Normal)
		c.Settle(now, Answer{Rule: r, Buckets: rep.Buckets, At: now, ServerNow: now})
		if n := testing.AllocsPerRun(500, func() {
			c.mu.Lock()
			c.foldLocked()
			c.mu.Unlock()
			c.allow(now, 1, r)
		}); n > 0 {
			t.Errorf("%v: %v allocations to unfold it", r, n)
		}
	}
}
