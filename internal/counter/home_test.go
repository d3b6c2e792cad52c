package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The masters of a Cluster do not agree on the time. A new window goes by the clock of
// the master that its key lives on, before the reconciler has seen it, and so do the
// units that it reports: by the clock of another, which is 5 s behind, the window would
// be over at a time at which it is not, and they with it.
func TestNewWindowGoesByItsOwnMaster(t *testing.T) {
	const second = int64(time.Second)
	fixed := limit.Must(limit.FixedWindow("fixed", 5, 10*time.Second))
	sliding := limit.Must(limit.SlidingWindowBuckets("sliding", 5, 10*time.Second, 1000))
	for _, r := range []*limit.Rule{fixed, sliding} {
		link := newTestLink()
		link.Part(-1).SetOffset(0, -1) // the master that has answered first
		link.Part(1).SetOffset(5*second, 1)
		now := int64(1e18) + 7*second // for the key's master the window is 2 s old, and ends in 8 s
		c := NewAlone("k", r, link, now)
		for range 5 {
			if ok, _, _ := c.allow(now, 1, r); !ok {
				t.Fatalf("%v: refused", r)
			}
		}
		later := now + 6*second // for the other one it has ended
		if ok, _, _ := c.allow(later, 1, r); ok {
			t.Errorf("%v: admits 6 of 5 within 6 s", r)
		}
		rep, ok := c.collect(later, Normal)
		if id := (now + 5*second) / int64(arith.Of(r).Width); !ok || rep.Units != 5 || len(rep.Buckets) != 1 || rep.Buckets[0].ID != id {
			t.Errorf("%v: reports %+v, want 5 units in bucket %d", r, rep, id)
		}
		if n := link.Expired.Load(); n != 0 {
			t.Errorf("%v: %d units expired", r, n)
		}
	}
}
