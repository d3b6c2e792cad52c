package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Fault 35: an older reading of the clock counts as the newest one.
func TestTimeNeverRunsBackwards(t *testing.T) {
	for _, r := range []*limit.Rule{funnelRule(t, 5, 5, time.Second), windowRule(t, 5, time.Second, 10), windowRule(t, 5, time.Second, 1)} {
		c := NewAlone("k", r, nil, 0)
		now := int64(100 * time.Second)
		for range 5 {
			c.allow(now, 1, r)
		}
		for _, back := range []int64{1, int64(time.Second), int64(90 * time.Second)} {
			if ok, _, _ := c.allow(now-back, 1, r); ok {
				t.Fatalf("%v: a clock %v late got a unit more", r, time.Duration(back))
			}
		}
		res, _ := c.take(now-int64(50*time.Second), 1, r)
		if res.RetryAfter <= 0 || res.RetryAfter > 2*time.Second {
			t.Fatalf("%v: RetryAfter %v after the clock stepped back", r, res.RetryAfter)
		}
	}
}
