package local

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// After an outage units go on to weigh what they did in it until the authority
// has been told: till then nobody knows what the others have admitted.
func TestWeightLastsUntilTheAnswer(t *testing.T) {
	for _, r := range []*limit.Rule{funnelRule(t, 30, 30, time.Hour), windowRule(t, 30, time.Hour, 10)} {
		link := newTestLink()
		now := int64(1e15)
		c := newCounter("k", r, 0, link, now)
		link.SetMode(3, true)
		got := int64(0)
		take := func() {
			for range 100 {
				if ok, _, _ := c.allow(now, 1, r); ok {
					got++
				}
			}
		}
		take()
		link.SetMode(1, false)
		take()
		if got != 10 {
			t.Errorf("%v: %d units admitted before the answer, want 10", r, got)
		}
		rep, ok := c.Collect(now, false)
		if !ok || rep.Units != got {
			t.Fatalf("%v: told %+v", r, rep)
		}
		a := Answer{Rule: r, At: now, ServerNow: now, Level: r.Cost(10), Buckets: rep.Buckets}
		c.Settle(now, a)
		take()
		if got != 30 {
			t.Errorf("%v: %d units admitted after the answer, want 30", r, got)
		}
	}
}
