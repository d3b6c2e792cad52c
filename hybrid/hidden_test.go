package hybrid

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Where nobody knows where shards are, a slow server is still asked for a few at a time.
func TestHiddenShardsOnASlowServer(t *testing.T) {
	for _, unmapped := range []bool{false, true} {
		s := emptySim(t, 1, Options{Shards: 64, SyncInterval: simInterval}, 1, []*limit.Rule{reconcileRule})
		s.oracle.loose, s.unmapped = true, unmapped
		for range 3 {
			s.addNode(Options{})
		}
		s.run(2 * time.Second)
		for _, n := range s.nodes {
			n.takeAll(300)
		}
		s.run(5 * time.Second)
		s.servers[0].capacity = perScript(4 * ms)
		s.down = true
		s.untilMode(s.nodes[0], Degraded)
		s.down = false
		for _, n := range s.nodes {
			n.takeAll(100)
		}
		s.run(60 * time.Second)
		for _, n := range s.nodes {
			s.oracle.struck(s.servers[0])
			changes := n.stats.stateChanges.Load()
			s.run(10 * time.Second)
			if n.core.state.Mode != Synced || n.unsynced() != 0 || n.stats.stateChanges.Load() != changes {
				t.Errorf("unknown client: %v: %s: %v, %d units unsynced, %d state changes", unmapped, n.name, n.core.state, n.unsynced(), n.stats.stateChanges.Load()-changes)
			}
		}
	}
}

// Shards by themselves share what may be under way: they may all be on one server.
func TestHiddenShardsAtSaturation(t *testing.T) {
	wide := limit.Must(limit.SlidingWindowBuckets("wide", 1_000_000, 1000*time.Second, 1000))
	for _, unmapped := range []bool{false, true} {
		s := emptySim(t, 1, Options{Shards: 64}, 1, []*limit.Rule{wide})
		s.oracle.loose, s.unmapped = true, unmapped
		v := s.servers[0]
		v.capacity = usual()
		v.capacity.slow = 4
		s.excuse(v)
		n := s.addNode(Options{})
		s.run(3 * time.Second)
		n.modes = nil
		const keys = 400
		for i := range keys {
			v.fill(fmt.Sprint("key", i), wide)
		}
		for range 10 {
			for i := range keys {
				n.take(fmt.Sprint("key", i), wide, 1)
			}
			s.run(time.Second)
		}
		s.run(20 * time.Second)
		if f := n.stats.failures.Load(); f > 2 {
			t.Errorf("unknown client %v: %d exchanges have failed on a healthy server, which was %v", unmapped, f, n.modes)
		}
	}
}

// A slow server has found its budget. The client calls it by another address at times.
func TestBudgetOfARenamedServer(t *testing.T) {
	wide := limit.Must(limit.SlidingWindowBuckets("wide", 1_000_000, 1000*time.Second, 1000))
	for _, renamed := range []bool{false, true} {
		s := emptySim(t, 1, Options{Shards: 64}, 1, []*limit.Rule{wide})
		s.oracle.loose = true
		v := s.servers[0]
		v.capacity = usual()
		v.capacity.slow = 20
		s.excuse(v)
		n := s.addNode(Options{})
		s.run(3 * time.Second)
		n.modes = nil
		const keys = 400
		for i := range keys {
			v.fill(fmt.Sprint("key", i), wide)
		}
		other := make([]string, 64)
		for i := range other {
			other[i] = "other"
		}
		for range 30 {
			for i := range keys {
				n.take(fmt.Sprint("key", i), wide, 1)
			}
			s.run(time.Second)
			if renamed {
				n.core.place(other)
			}
		}
		f := n.stats.failures.Load()
		if f > 10 {
			t.Errorf("renamed %v: %d exchanges have failed", renamed, f)
		}
	}
}
