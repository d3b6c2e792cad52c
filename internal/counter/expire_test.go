package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"
)

// The authority's clock was set: what was admitted while a batch was under way
// has outlived its window by the time of the answer, and counts as expired.
func TestSettleCountsWhatItExpires(t *testing.T) {
	r := windowRule(t, 100, time.Second, 10)
	link := newTestLink()
	now := int64(1e15)
	c := NewAlone("k", r, link, now)
	c.take(now, 7, r)
	if rep, ok := c.collect(now, Normal); !ok || rep.Units != 7 {
		t.Fatalf("reports %+v", rep)
	}
	c.take(now, 5, r)
	at := now + int64(time.Millisecond)
	c.Settle(at, report.Answer{Rule: r, At: at, ServerNow: at + int64(time.Minute)})
	if c.Unsynced() != 0 || link.Expired.Load() != 5 {
		t.Errorf("%d units unsynced, %d expired, want 0 and 5", c.Unsynced(), link.Expired.Load())
	}
}
