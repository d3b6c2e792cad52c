package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The machine sleeps for half an hour: its clocks stand still (suspended), or jump by
// as much when it wakes. Redis has gone on.
//
// Fault 35: on waking at most one burst is admitted, no wait is negative, and
// soon the limit is what it was; after a jump back, which no system's clock
// makes, it is not exceeded.
func TestSuspended(t *testing.T) {
	const sleep = 30 * time.Minute
	for _, rule := range []*limit.Rule{
		limit.Must(limit.SlidingWindow("s", 10, 10*time.Second)),
		limit.Must(limit.FixedWindow("x", 10, 10*time.Second)),
		limit.Must(limit.TokenBucket("f", 10, 10*time.Second, 10)),
	} {
		for name, jump := range map[string]time.Duration{"stands": 0, "jumps": sleep, "jumps back": -sleep} {
			t.Run(arith.Of(rule).Algorithm.String()+" "+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					now := clock.NewManual(time.Now())
					run := func(d time.Duration) {
						for range d / (100 * time.Millisecond) {
							now.Advance(100 * time.Millisecond)
							time.Sleep(100 * time.Millisecond)
						}
					}
					n := w.synced(hybrid.Options{Clock: now})
					run(time.Second)
					wantAdmitted(t, n.Limiter, "k", rule, 20, 10)
					run(time.Second)
					n.net.down()
					time.Sleep(sleep)
					now.Advance(jump)
					burst := 0
					for range 30 {
						res := n.Take("k", rule, 1)
						if res.Allowed {
							burst++
						}
						if res.RetryAfter < 0 || res.ResetAfter < 0 || res.Remaining < 0 || res.RetryAfter > time.Minute {
							t.Fatalf("on waking: %+v", res)
						}
					}
					n.net.up()
					run(6 * time.Second)
					wantMode(t, n.Limiter, hybrid.Synced)
					burst += admitted(n.Limiter, "k", rule, 30)
					if leaked := map[bool]int{true: 7}[arith.Of(rule).Algorithm == arith.TokenBucket]; burst > 10+leaked {
						t.Errorf("%d admitted within 6 s of waking", burst)
					}
					if jump < 0 {
						return // a used key waits for the clock to come by again
					}
					run(30 * time.Second)
					wantAdmitted(t, n.Limiter, "k", rule, 30, 10)
					run(time.Second)
					conserved(t, n.Limiter, true)
				})
			})
		}
	}
}
