package hybrid_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var fallbacks = []hybrid.Fallback{hybrid.FairShare, hybrid.FullLimit, hybrid.FailOpen, hybrid.FailClosed}

// A Redis that is far away answers late: to connect and to greet takes round trips. A start is no outage.
//
// Fault 111: resyncing until the first answer, never degraded.
func TestStartFarAwayIsNoOutage(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 80 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
		for _, policy := range fallbacks {
			for _, nodes := range []int{0, 4} {
				t.Run(fmt.Sprint(trip, " ", policy, " ", nodes), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world) {
						var seen changes
						n := w.node(hybrid.Options{Fallback: policy, ExpectedNodes: nodes, OnStateChange: seen.add}, &network{trip: trip})
						for n.State().Mode == hybrid.Resyncing {
							if res := n.Take("k", longWindow, 1); !res.Allowed || res.Source != limit.SourceUnsynced {
								t.Fatalf("%+v before the first answer (%v)", res, n.State())
							}
							time.Sleep(10 * time.Millisecond)
						}
						time.Sleep(5 * time.Second)
						if got := seen.modes(); !slices.Equal(got, []hybrid.Mode{hybrid.Synced}) {
							t.Errorf("modes %v, want synced only", got)
						}
						if f := n.Figures().Failures; f != 0 {
							t.Errorf("%d failures: %v", f, n.Figures().FailuresBy)
						}
					})
				})
			}
		}
	}
}

// A start that really has no Redis is an outage: at once if that is known, and else after ten times
// CommandTimeout.
func TestStartWithoutRedisIsAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*network)
		most  time.Duration
	}{
		"refused":                        {func(n *network) { n.refuse = true }, 10 * time.Millisecond},
		"packets vanish":                 {func(n *network) { n.hang = true }, 2600 * time.Millisecond},
		"it is connected, and is silent": {func(n *network) { n.swallow = true }, 2600 * time.Millisecond},
	} {
		for _, policy := range fallbacks {
			t.Run(name+" "+policy.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					net := new(network)
					c.fault(net)
					rdb := w.client(net, func(o *redis.Options) {
						far := hybrid.RedisOptions("")
						o.DialTimeout, o.ReadTimeout, o.WriteTimeout = far.DialTimeout, far.ReadTimeout, far.WriteTimeout
					})
					l := newLimiter(t, rdb, hybrid.Options{Fallback: policy})
					begun := time.Now()
					for l.State().Mode == hybrid.Resyncing && time.Since(begun) < time.Minute {
						time.Sleep(time.Millisecond)
					}
					if took := time.Since(begun); l.State().Mode != hybrid.Degraded || took > c.most {
						t.Fatalf("%v after %v, want degraded after %v", l.State(), took, c.most)
					}
					if res := l.Take("k", longWindow, 1); res.Allowed == (policy == hybrid.FailClosed) || res.Source != limit.SourceDegraded {
						t.Errorf("%v decides %+v", policy, res)
					}
				})
			})
		}
	}
}
