package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// dayFrom returns a quota of ten for a day that begins at this time.
func dayFrom(at time.Time) *limit.Rule {
	const day = 24 * 60 * 60
	zone := time.FixedZone("zone", day/2-int((at.Unix()+day/2)%day))
	return limit.Must(limit.Quota("daily", 10, limit.Calendar{Unit: limit.Day, Zone: zone}))
}

// A fleet changes to the next period when Redis' clock does, whatever its own clocks show, also in an
// outage. Who is refused is told when that will be.
//
// Fault 105: a fleet, and an outage in which a period begins.
func TestCalendarFleet(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(3, hybrid.Options{})
		begins := time.Now().Truncate(time.Second).Add(20 * time.Second)
		rule := dayFrom(begins)
		fill := func(key string, want int) {
			t.Helper()
			admitted := 0
			for i := range 12 {
				if n := nodes[i%3]; i%2 == 0 && n.State().Mode == hybrid.Synced {
					if exact(t, n.Limiter, key, rule) {
						admitted++
					}
				} else if n.Allow(key, rule) {
					admitted++
				}
				time.Sleep(300 * time.Millisecond)
			}
			if admitted != want {
				t.Errorf("%d admitted of %s, want %d", admitted, key, want)
			}
		}
		fill("k", 10)
		for _, n := range nodes {
			res := n.Take("k", rule, 1)
			if left := time.Until(begins); res.Allowed || res.RetryAfter < left-time.Millisecond || res.RetryAfter > left+time.Millisecond {
				t.Errorf("%v, %v before the period ends", res, left)
			}
		}
		fill("other", 10)
		time.Sleep(time.Until(begins.Add(time.Second)))
		w.wantUsed("k", rule, 0)
		fill("k", 10)
		w.wantUsed("k", rule, 10)

		begins = time.Now().Truncate(time.Second).Add(20 * time.Second)
		rule = limit.Must(limit.Quota("in an outage", 9, limittest.CalendarOf(dayFrom(begins))))
		fill("k", 9)
		for _, n := range nodes {
			n.net.down()
		}
		time.Sleep(time.Until(begins.Add(-time.Second)))
		for _, n := range nodes {
			wantMode(t, n.Limiter, hybrid.Degraded)
			if n.Allow("k", rule) {
				t.Error("admitted before the period ends")
			}
		}
		time.Sleep(time.Until(begins.Add(time.Second)))
		fill("k", 9) // a third of the limit for each
		for _, n := range nodes {
			n.net.up()
		}
		time.Sleep(30 * time.Second)
		w.wantUsed("k", rule, 9)
		for _, n := range nodes {
			conserved(t, n.Limiter, true)
		}
	})
}
