package sim

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// crowdOf returns a world of nodes that have started within two heartbeats, have all been
// asked for some keys, and are idle now.
func crowdOf(t *testing.T, size, keys int) (*sim, *simServer) {
	rule := limit.Must(limit.FixedWindow("x", 1_000_000, 1000*time.Hour))
	s := emptySim(t, 1, Options{Shards: 1}, 1, []*limit.Rule{rule})
	s.oneCall, s.oracle.loose = true, true
	v := s.servers[0]
	v.capacity = usual()
	for range size {
		s.run(time.Duration(s.rng.Int64N(4 * int64(time.Second) / int64(size))))
		n := s.addNode(Options{})
		s.after(s.rng.Int64N(2000*ms), func() {
			for i := range keys {
				n.take(fmt.Sprint("key", i), rule, 1)
			}
		})
	}
	s.run(6 * time.Second)
	for _, n := range s.nodes {
		if n.core.State().Mode != reconcile.Synced || n.unsynced() != 0 {
			t.Fatalf("%s: %v, %d units unsynced", n.name, n.core.State(), n.unsynced())
		}
	}
	return s, v
}

// A thousand nodes that nobody asks for anything cost Redis one script a heartbeat each. They
// notice within a heartbeat that it has lost everything, and what they know is reported
// again without a storm.
func TestThousandIdleNodes(t *testing.T) {
	const (
		size, keys = 1000, 5
		heartbeat  = time.Second
		slot       = 100 * time.Millisecond
		idle       = 5 * time.Second
	)
	s, v := crowdOf(t, size, keys)
	work := func(d time.Duration) (exchanges, scripts, most int) {
		atFirst, scriptsAtFirst := v.exchanges, v.scripts
		for end := s.now + int64(d); s.now < end; {
			before := v.scripts
			s.run(slot)
			most = max(most, v.scripts-before)
		}
		return v.exchanges - atFirst, v.scripts - scriptsAtFirst, most
	}
	exchanges, scripts, most := work(idle)
	perSecond := float64(exchanges) / idle.Seconds()
	t.Logf("idle: %.0f exchanges a second, %d scripts in %d, at most %d in %v", perSecond, scripts, exchanges, most, slot)
	if perSecond > 1.1*size || perSecond < 0.9*size || scripts != exchanges {
		t.Errorf("%.0f exchanges a second, %d scripts in %d", perSecond, scripts, exchanges)
	}
	// Beats that are spread by chance: 1/0.9 of a heartbeat's share, and five standard
	// deviations of as many.
	beats := float64(size) * slot.Seconds() / (0.9 * heartbeat.Seconds())
	bound := func(each float64) int { return int(each * (beats + 5*math.Sqrt(beats))) }
	if most > bound(1) {
		t.Errorf("%d scripts in %v, want at most %d", most, slot, bound(1))
	}

	v.wipe()
	var noticed []time.Duration
	lost, seen := s.now, map[*simNode]bool{}
	busiest, inSlot, slotAt := 0, v.scripts, s.now
	for s.now-lost < 3*int64(time.Second) {
		s.run(5 * time.Millisecond)
		for _, n := range s.nodes {
			if !seen[n] && n.stats.Losses.Load() > 0 {
				seen[n] = true
				noticed = append(noticed, time.Duration(s.now-lost))
			}
		}
		if s.now-slotAt >= int64(slot) {
			busiest, inSlot, slotAt = max(busiest, v.scripts-inSlot), v.scripts, s.now
		}
	}
	if len(noticed) < size {
		t.Fatalf("%d nodes of %d have noticed", len(noticed), size)
	}
	// The beat that notices, one at once that looks at the other shards (there are none
	// here), and the report of what is known: three scripts of each node in a heartbeat.
	t.Logf("loss: noticed within %v; at most %d scripts in %v, the bound is %d", slices.Max(noticed), busiest, slot, bound(3))
	if most := heartbeat + 50*time.Millisecond; slices.Max(noticed) > most {
		t.Errorf("noticed after %v, want %v at most", slices.Max(noticed), most)
	}
	if busiest > bound(3) {
		t.Errorf("%d scripts in %v after a loss, want at most %d", busiest, slot, bound(3))
	}
	if n := s.failures(); n > 0 {
		t.Errorf("%d exchanges have failed", n)
	}
	for _, n := range s.nodes {
		if got := n.stats.Losses.Load(); got != 1 || n.look().Nodes != size || n.core.State().Mode != reconcile.Synced {
			t.Fatalf("%s: %v, %d losses", n.name, n.core.State(), got)
		}
	}
	for i := range keys {
		k := oracleKey{s.rules[0], fmt.Sprint("key", i)}
		if got := v.holds(s.keyspace().CounterKey(k.rule, k.key), k.rule); got != size {
			t.Errorf("Redis holds %.0f units of %q, %d were admitted", got, k.key, size)
		}
	}
	if exchanges, scripts, _ := work(idle); float64(exchanges)/idle.Seconds() > 1.1*size || scripts != exchanges {
		t.Errorf("%d exchanges with %d scripts in %v, when all is repaired", exchanges, scripts, idle)
	}
}

// flush asks the core to reconcile all.
func (n *simNode) flush() {
	n.asked++
	n.step(reconcile.Flush{ID: n.asked, All: true})
}
