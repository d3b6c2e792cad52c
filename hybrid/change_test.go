package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A rule is changed while its counters are in use and in flight: nothing is
// forgotten, nothing gets stuck, and the new limit applies at once.
//
// Fault 47: limit and window change while units are in flight.
func TestRuleChangesLive(t *testing.T) {
	shapes := map[string][]*limit.Rule{
		"sliding": {
			limit.Must(limit.SlidingWindow("r", 1000, time.Hour)),
			limit.Must(limit.SlidingWindow("r", 2000, time.Hour)),
			limit.Must(limit.SlidingWindow("r", 1000, 2*time.Hour)),
			limit.Must(limit.SlidingWindowBuckets("r", 500, 3*time.Hour, 60)),
			limit.Must(limit.SlidingWindowBuckets("r", 500, time.Hour, 1)),
		},
		"funnel": {
			limit.Must(limit.TokenBucket("r", 7, time.Hour, 1000)),
			limit.Must(limit.TokenBucket("r", 7, time.Hour, 10)),
			limit.Must(limit.TokenBucket("r", 11, time.Hour, 1000)),
			limit.Must(limit.TokenBucket("r", 13, 3*time.Hour, 500)),
		},
	}
	for name, rules := range shapes {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					rng := rand.New(rand.NewPCG(seed, 3))
					nodes := []*node{w.synced(hybrid.Options{}), w.synced(hybrid.Options{})}
					for range 200 {
						n := nodes[rng.IntN(2)]
						n.net.set(func(n *network) { n.drop, n.cut = rng.IntN(8)/7, rng.IntN(8)/7 })
						n.Allow("k", rules[rng.IntN(len(rules))])
						time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
					}
					time.Sleep(5 * time.Second)
					for _, n := range nodes {
						wantMode(t, n.Limiter, hybrid.Synced)
						conserved(t, n.Limiter, true)
						if s := n.Figures(); s.BadReplies != 0 || s.Quarantined != 0 || s.ExpiredUnits != 0 {
							t.Errorf("%+v", s)
						}
					}
					all := nodes[0].Figures().BookedUnits + nodes[1].Figures().BookedUnits
					for _, n := range nodes {
						flush(t, n.Limiter)
					}
					rule := rules[0]
					if used := rule.Limit() - nodes[0].Peek("k", rule).Remaining; used < all-1 {
						t.Errorf("%d units were admitted, %d count under the last rule", all, used)
					}
				})
			})
		}
	}
}

// Four nodes are cut off. Each admits one request that is larger than its share, and costs the
// whole limit. Then the limit is raised: the request costs as much as it would have cost under
// the new limit, and each node goes on to its share of that, and no further.
//
// Fault 47: a limit is raised in an outage.
func TestRaisedLimitInAnOutage(t *testing.T) {
	const fleet = 4
	rules := map[string]func(int64) *limit.Rule{
		"funnel":  func(l int64) *limit.Rule { return limit.Must(limit.TokenBucket("r", 1, 24*time.Hour, l)) },
		"rate":    func(l int64) *limit.Rule { return limit.Must(limit.TokenBucket("r", l, 24*time.Hour, l)) },
		"sliding": func(l int64) *limit.Rule { return limit.Must(limit.SlidingWindow("r", l, 24*time.Hour)) },
		"fixed":   func(l int64) *limit.Rule { return limit.Must(limit.FixedWindow("r", l, 24*time.Hour)) },
	}
	for name, rule := range rules {
		for _, p := range [][2]int64{{1, 7}, {2, 7}, {1, 12}, {2, 12}, {2, 400}} {
			first, raised := p[0], p[1]
			t.Run(fmt.Sprint(name, p), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					nodes := w.fleet(fleet, hybrid.Options{})
					for _, n := range nodes {
						n.net.down()
					}
					time.Sleep(5 * time.Second)
					for _, n := range nodes {
						wantMode(t, n.Limiter, hybrid.Degraded)
						if !n.Take("k", rule(2), first).Allowed {
							t.Errorf("%d of 2 units are refused", first)
						}
						wantAdmitted(t, n.Limiter, "k", rule(raised), 200, int(max(raised/fleet-first, 0)))
						wantAdmitted(t, n.Limiter, "k", rule(2), 10, 0)
						wantAdmitted(t, n.Limiter, "k", rule(raised), 10, 0)
					}
				})
			})
		}
	}
}

// Redis' clock jumps (another machine has taken over). It alone decides when a
// window ends: what was used stays used until then, and no longer. A leaky bucket is
// kept as an instant of Redis' time as well; when that goes back it drains that
// much later, and what the nodes know keeps it from draining early.
//
// Fault 34: windows end by Redis' clock, wherever it jumps.
func TestRedisClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, -3 * time.Second, 3 * time.Second, time.Hour} {
		for _, rule := range []*limit.Rule{
			limit.Must(limit.SlidingWindow("s", 10, 20*time.Second)),
			limit.Must(limit.TokenBucket("f", 10, 20*time.Second, 10)),
		} {
			if arith.Of(rule).Algorithm == arith.TokenBucket && jump < -time.Minute {
				continue
			}
			t.Run(fmt.Sprint(arith.Of(rule).Algorithm, jump), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					a, b := w.synced(hybrid.Options{}), w.synced(hybrid.Options{})
					b.AllowN("k", rule, 11)
					wantAdmitted(t, a.Limiter, "k", rule, 20, 10)
					time.Sleep(100 * time.Millisecond)
					w.skew(jump)
					time.Sleep(1900 * time.Millisecond)
					for _, n := range []*node{a, b} {
						n.AllowN("k", rule, 11)
						time.Sleep(600 * time.Millisecond)
					}
					leaked := 0
					if arith.Of(rule).Algorithm == arith.TokenBucket {
						leaked = 3 // of 3.2 s at one per 2 s, and the jump's own part
						if jump == 3*time.Second {
							leaked = 4
						}
					}
					if arith.Of(rule).Algorithm != arith.TokenBucket && jump == time.Hour {
						leaked = 20 // the window is over: each finds it empty
					}
					got := admitted(a.Limiter, "k", rule, 20)
					time.Sleep(500 * time.Millisecond)
					got += admitted(b.Limiter, "k", rule, 20)
					if got > leaked {
						t.Errorf("%d admitted 3 s after the limit was reached, at most %d are due", got, leaked)
					}
					time.Sleep(25 * time.Second)
					if got := admitted(a.Limiter, "k", rule, 20); got != 10 {
						t.Errorf("%d admitted when the window is over, want 10", got)
					}
					time.Sleep(time.Second)
					for _, n := range []*node{a, b} {
						wantMode(t, n.Limiter, hybrid.Synced)
						conserved(t, n.Limiter, true)
					}
				})
			})
		}
	}
}
