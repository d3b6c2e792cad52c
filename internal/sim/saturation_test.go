package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A Redis that is well, and has more to do than it has time for. Congestion makes reports
// late; it lets no exchange time out and degrades no node.

// saturated returns a world of one server with a capacity and one shard, in which nothing
// else is wrong.
func saturated(t *testing.T, nodes int, slow int64, rules ...*limit.Rule) (*sim, *simServer) {
	t.Helper()
	s := emptySim(t, 1, Options{Shards: 1}, 1, rules)
	s.oracle.loose = true
	v := s.servers[0]
	v.capacity = usual()
	v.capacity.slow = slow
	// The tests themselves say whether a node may be degraded, and how often it was.
	var excuse func()
	excuse = func() {
		s.oracle.struck(v)
		s.after(int64(time.Second), excuse)
	}
	excuse()
	for range nodes {
		s.addNode(Options{})
	}
	s.run(3 * time.Second)
	for _, n := range s.nodes {
		n.modes = nil // of the start
	}
	return s, v
}

// failures returns how many exchanges have failed, of all nodes.
func (s *sim) failures() (sum uint64) {
	for _, n := range s.nodes {
		sum += n.stats.Failures.Load()
	}
	return sum
}

// stayedSynced fails if a node was ever anything but synced after its start.
func (s *sim) stayedSynced() {
	s.t.Helper()
	for _, n := range s.nodes {
		if slices.ContainsFunc(n.modes, func(m reconcile.Mode) bool { return m != reconcile.Synced }) {
			s.t.Errorf("%s has been %v", n.name, n.modes)
		}
	}
}

// reportedOnce fails if Redis does not have exactly what was admitted.
func (s *sim) reportedOnce() {
	s.t.Helper()
	for _, n := range s.nodes {
		if got := s.redis.applied[n.name]; got != n.admitted || n.unsynced() != 0 {
			s.t.Errorf("%s has admitted %d units, Redis has booked %d, %d wait", n.name, n.admitted, got, n.unsynced())
		}
	}
}

// fill has Redis hold a unit in each bucket of a window, which nobody here has admitted.
func (v *simServer) fill(key string, r *limit.Rule) {
	now := v.time()
	w := &modelWindow{buckets: map[int64]int64{}, last: map[int64]int64{}}
	for i := range int64(arith.Of(r).Kept) + 1 {
		w.buckets[arith.Of(r).Index(now)-i] = 1
	}
	w.expire(now, keptFor, r)
	v.model.windows[v.s.keyspace().CounterKey(r, key)] = w
}

// 200 windows take Redis longer than an exchange may last, even when it only has to read
// them. They are reported in smaller flights, and each unit is booked once.
//
// Fault 75: 400 windows of 1,000 buckets, in one shard.
func TestFlightsThatOverrunTheTimeout(t *testing.T) {
	wide := limit.Must(limit.SlidingWindowBuckets("wide", 1_000_000, 1000*time.Second, 1000))
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			s, v := saturated(t, nodes, 4, wide)
			const keys = 400
			if one := 200 * int64(arith.Of(wide).Kept) * v.capacity.bucket * v.capacity.slow; one < simTimeout {
				t.Fatalf("200 windows are read within %v", time.Duration(one))
			}
			for i := range keys {
				v.fill(fmt.Sprint("key", i), wide)
			}
			for round := range 3 {
				for i := range keys {
					for _, n := range s.nodes {
						n.take(fmt.Sprint("key", i), wide, 1)
					}
				}
				s.run(time.Duration(1+3*round) * time.Second)
			}
			busy := v.busy
			s.run(time.Duration(10+20*nodes) * time.Second)
			s.stayedSynced()
			s.reportedOnce()
			failures := s.failures()
			s.run(10 * time.Second)
			t.Logf("%d exchanges failed, the server worked %v in all and for %v after the last unit", failures, time.Duration(v.busy), time.Duration(v.busy-busy))
			if more := s.failures() - failures; more > 0 {
				t.Errorf("%d exchanges fail in 10 s in which nobody is asked for anything", more)
			}
			// A node may have to find out how slow the server is: a report and a heartbeat.
			if failures > uint64(2*nodes) {
				t.Errorf("%d exchanges have failed", failures)
			}
		})
	}
}
