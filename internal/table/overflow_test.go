package table

import (
	"testing"
	"time"
)

// The cost multiplier of the counter of those who find no room may change: what was admitted
// before goes on counting as it did.
func TestOverflowKeepsItsMultiplier(t *testing.T) {
	r, now := windowRule(t, 12, time.Hour, 10), int64(1e12)
	link := newTestLink()
	table := newTable(t, Options{Link: link})
	sh := &table.index.shards[0]
	for i, step := range []struct {
		n, multiplier int64
		admitted      bool
	}{{5, 1, true}, {1, 3, true}, {1, 3, true}, {1, 1, true}, {1, 1, false}} {
		link.SetMode(step.multiplier, step.multiplier > 1)
		sh.mu.Lock()
		c := table.overflowLocked(sh, r, now)
		if ok, _, _ := c.Check(now, step.n, r); ok != step.admitted {
			t.Errorf("step %d: admitted: %v", i, ok)
		}
		sh.mu.Unlock()
	}
}
