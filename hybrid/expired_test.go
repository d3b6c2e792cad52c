package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Redis stops answering while batches are under way, and stays away for so long that what
// they carry expires. Then it gets them, and after them what was admitted meanwhile. Redis has
// lost nothing, and the nodes say so; a bucket holds no more than an outage may leave in it.
//
// Fault 13: what has expired is not lost, and is not restored.
func TestExpiredIsNotLost(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.TokenBucket("b", 5, 5, time.Minute)),
		limit.Must(limit.TokenBucket("odd", 7, 7, 61*time.Second)),
		limit.Must(limit.SlidingWindow("s", 5, time.Minute)),
		limit.Must(limit.FixedWindow("x", 5, time.Minute)),
	} {
		for _, size := range []int{1, 2, 3} {
			for _, asked := range []int{1, 5} {
				t.Run(fmt.Sprint(rule.Algorithm(), rule.Limit(), " ", size, " nodes ", asked), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world) { expiredIsNotLost(t, w, rule, size, asked) })
				})
			}
		}
	}
}

func expiredIsNotLost(t *testing.T, w *world, rule *limit.Rule, size, asked int) {
	nodes, total := w.fleet(size, hybrid.Options{}), 0
	begun := time.Now()
	traffic := func(rounds int) {
		for range rounds {
			for _, n := range nodes {
				total += admitted(n.Limiter, "k", rule, asked)
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
	if left := nodes[0].Peek("k", rule).ResetAfter; left > 2*time.Minute+2*time.Second { // full, and MaxDebt
		t.Errorf("Redis counts what leaks for %v", left)
	}
	traffic(1)
	for i, n := range nodes {
		wantMode(t, n.Limiter, hybrid.Synced)
		conserved(t, n.Limiter, true)
		if s := n.Stats(); s.RolledBackKeys != 0 || s.Losses != 0 {
			t.Errorf("node %d: %d keys rolled back, %d losses", i, s.RolledBackKeys, s.Losses)
		}
	}
	if most := rule.Limit() + int64(time.Since(begun))*rule.Limit()/int64(time.Minute); size == 1 && rule.Algorithm() == limit.AlgorithmFunnel && int64(total) > most {
		t.Errorf("one node has admitted %d, at most %d fit", total, most)
	}
}
