package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Redis stops answering while batches are under way, and stays away for so long that what
// they carry expires. Then it gets them, and after them what was admitted meanwhile. Redis has
// lost nothing, and the nodes say so; none holds more than fits.
//
// Fault 13: what has expired is not lost, and is not restored.
func TestExpiredIsNotLost(t *testing.T) {
	type play struct {
		rule  *limit.Rule
		size  int // of the fleet
		asked int // checks each 15 s, on each node
	}
	var all []play
	for _, rule := range []*limit.Rule{
		limit.Must(limit.TokenBucket("b", 5, time.Minute, 5)),
		limit.Must(limit.TokenBucket("odd", 7, 61*time.Second, 7)),
		limit.Must(limit.SlidingWindow("s", 5, time.Minute)),
		limit.Must(limit.FixedWindow("x", 5, time.Minute)),
	} {
		all = append(all, play{rule, 1, 1}, play{rule, 1, 5}, play{rule, 2, 5})
	}
	if hybrid.UnderRace {
		all = all[:3] // the others take other numbers through the same code
	}
	for _, p := range all {
		inBubble(t, func(t *testing.T, w *world) {
			nodes, begun, total := w.fleet(p.size, hybrid.Options{}), time.Now(), 0
			traffic := func(rounds int) {
				for range rounds {
					for _, n := range nodes {
						total += admitted(n.Limiter, "k", p.rule, p.asked)
					}
					time.Sleep(15 * time.Second)
				}
			}
			traffic(8)
			for _, n := range nodes {
				n.net.set(func(n *network) { n.swallow = true })
			}
			traffic(40)
			for _, n := range nodes {
				wantMode(t, n.Limiter, hybrid.Degraded)
				n.net.up()
			}
			time.Sleep(10 * time.Second)
			if left := nodes[0].Peek("k", p.rule).ResetAfter; left > 70*time.Second {
				t.Errorf("%v: Redis counts what leaks for %v", p, left)
			}
			traffic(1)
			for i, n := range nodes {
				wantMode(t, n.Limiter, hybrid.Synced)
				conserved(t, n.Limiter, true)
				if s := n.Figures(); s.RolledBackKeys != 0 || s.Losses != 0 {
					t.Errorf("%v: node %d: %d keys rolled back, %d losses", p, i, s.RolledBackKeys, s.Losses)
				}
			}
			if p.size > 1 || arith.Of(p.rule).Algorithm != arith.TokenBucket {
				return
			}
			if most := p.rule.Limit() + int64(time.Since(begun).Minutes()*float64(p.rule.Limit())); int64(total) > most {
				t.Errorf("%v: one node has admitted %d, at most %d fit", p, total, most)
			}
		})
	}
}
