package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Nodes that nobody asks for anything cost Redis one script a heartbeat each. They
// notice within a heartbeat that it has lost everything, and what they know is reported
// again without a storm.
func TestIdleNodes(t *testing.T) {
	const (
		size, keys = 300, 5
		slot       = 100 * time.Millisecond
		idle       = 5 * time.Second
	)
	rule := limit.Must(limit.FixedWindow("x", 1_000_000, 1000*time.Hour))
	s := emptySim(t, 1, Options{Shards: 1}, 1, []*limit.Rule{rule})
	s.oneCall, s.oracle.loose = true, true
	v := s.servers[0]
	v.capacity = usual()
	for range size {
		s.run(time.Duration(s.rng.Int64N(4 * int64(time.Second) / size)))
		n := s.addNode(Options{})
		s.after(s.rng.Int64N(2000*ms), func() {
			for i := range keys {
				n.take(fmt.Sprint("key", i), rule, 1)
			}
		})
	}
	s.run(6 * time.Second)
	// Beats that are spread by chance, each with so many scripts: 1/0.9 of a heartbeat's share, and
	// five standard deviations of as many.
	beats := size * slot.Seconds() / 0.9
	work := func(what string, d time.Duration, each float64) (exchanges, scripts int) {
		exchanges, scripts = v.exchanges, v.scripts
		for end := s.now + int64(d); s.now < end; {
			before := v.scripts
			s.run(slot)
			if most := int(each * (beats + 5*math.Sqrt(beats))); v.scripts-before > most {
				t.Errorf("%s: %d scripts in %v, want at most %d", what, v.scripts-before, slot, most)
			}
		}
		return v.exchanges - exchanges, v.scripts - scripts
	}
	for _, what := range []string{"idle", "repaired"} {
		if exchanges, scripts := work(what, idle, 1); exchanges != scripts || math.Abs(float64(exchanges)/idle.Seconds()/size-1) > 0.1 {
			t.Errorf("%s: %d exchanges with %d scripts in %v", what, exchanges, scripts, idle)
		}
		if what == "repaired" {
			break
		}
		// The beat that notices, one at once that looks at the other shards (there are none
		// here), and the report of what is known: three scripts of each node in a heartbeat.
		v.wipe()
		work("loss", time.Second+slot, 3)
		for _, n := range s.nodes {
			if got := n.stats.Losses.Load(); got != 1 || n.look().Nodes != size || n.core.State().Mode != reconcile.Synced || n.unsynced() != 0 {
				t.Fatalf("%s: %v, %d losses, a heartbeat after one", n.name, n.core.State(), got)
			}
		}
		work("loss", 2*time.Second, 3)
	}
	if n := s.failures(); n > 0 {
		t.Errorf("%d exchanges have failed", n)
	}
	for i := range keys {
		key := fmt.Sprint("key", i)
		if got := v.holds(s.keyspace().CounterKey(rule, key), rule); got != size {
			t.Errorf("Redis holds %.0f units of %q, %d were admitted", got, key, size)
		}
	}
}

// flush asks the core to reconcile all.
func (n *simNode) flush() {
	n.asked++
	n.step(reconcile.Flush{ID: n.asked, All: true})
}
