package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Nodes that are cut off, and do not divide the limit, fill a leaky bucket each, and each leaks.
// The simulator lets them, for as long as the outage lasts, and no limit more. Drawn seeds
// hardly ever fill several leaky buckets in one outage.
func TestSimOutageOfSeveralFunnels(t *testing.T) {
	const each = 100 * ms // in which a unit leaks
	rule := limit.Must(limit.Funnel("f", 100, 10, time.Second))
	s := emptySim(nil, 1, Options{Fallback: reconcile.FullLimit, Shards: simShards}, 1, []*limit.Rule{rule})
	nodes := []*simNode{s.addNode(Options{}), s.addNode(Options{}), s.addNode(Options{})}
	k := oracleKey{rule, "k"}
	admit := func(n *simNode, units int64) (failure string) {
		defer func() {
			if r := recover(); r != nil {
				failure = r.(simFailure).msg
			}
		}()
		s.fleet.admitted(n, k, admission{at: s.now, n: units, rule: rule, multiplier: 1}, true)
		s.fleet.outage(n, k)
		return ""
	}
	s.now += int64(time.Second)
	units := rule.Limit()
	for range 600 {
		for _, n := range nodes {
			if f := admit(n, units); f != "" {
				t.Fatal(f)
			}
		}
		s.now += each
		units = 1
	}
	if steps := s.fleet.steps[checkOutage]; steps != 3*600 {
		t.Errorf("checked %d times", steps)
	}
	if f := admit(nodes[1], rule.Limit()); !strings.HasPrefix(f, checkOutage) {
		t.Errorf("a limit more: %q", f)
	}
}
