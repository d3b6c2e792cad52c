package sim

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// TestPromiseOneKeyLost: Redis loses a single key (evicted, or deleted by
// hand) while the ledger stays: no sequence number shows it, only the answer,
// which is lower than what the nodes know. Their views must not fall, and
// Redis must learn it.
func TestPromiseOneKeyLost(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.SlidingWindow("sliding", 500, time.Hour)),
		limit.Must(limit.Funnel("funnel", 500, 1, time.Hour)),
	} {
		s := newSim(t, 3, 3, rule)
		s.run(2 * time.Second)
		s.overload(3*time.Second, rule, 100)
		s.run(2 * time.Second)
		clear(s.redis.windows)
		clear(s.redis.leaky)
		if more := len(s.overload(3*time.Second, rule, 100)); more > 0 {
			t.Errorf("%v: %d more admitted after Redis had lost the key", rule, more)
		}
		s.run(time.Second)
		fresh := s.addNode(Options{})
		s.run(2 * time.Second)
		fresh.take("hot", rule, 0)
		s.run(time.Second)
		if fresh.take("hot", rule, 1).Allowed {
			t.Errorf("%v: the key was not restored for a new node", rule)
		}
	}
}

// TestPromiseResetRolledBack: Redis forgets a reset and nothing else, before the node
// that has made it has reported anything since: no sequence number shows it. The node says
// so together with what it books next, which would else be booked on what was cleared.
//
// Fault 74: a reset stands after a small rollback.
func TestPromiseResetRolledBack(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.SlidingWindow("sliding", 100, time.Hour)),
		limit.Must(limit.Funnel("funnel", 100, 1, time.Hour)),
	} {
		s := emptySim(t, 1, Options{Shards: 1, SyncInterval: time.Second}, 1, []*limit.Rule{rule})
		s.oracle.loose = true
		n, v := s.addNode(Options{}), s.servers[0]
		s.run(2 * time.Second)
		n.take("k", rule, 40)
		s.run(4 * time.Second)
		for n.take("other", rule, 1); n.unsynced() > 0; {
			s.run(time.Millisecond)
		}
		old := v.save()
		acked := n.shard(0).Acked
		n.set(oracleKey{rule, "k"}, 0)
		s.run(4 * time.Millisecond) // and the next collection is an interval after the last one
		if left := n.take("k", rule, 0).Remaining; left != 100 || n.unsynced() != 0 || n.shard(0).Seq != acked {
			t.Fatalf("%v: %d remain after the reset, %d units unsynced, batch %d is sent, %d was answered", rule, left, n.unsynced(), n.shard(0).Seq, acked)
		}
		v.rollback(old)
		n.take("k", rule, 1)
		s.run(5 * time.Second)
		key := s.keyspace().CounterKey(rule, "k")
		if got, left := math.Ceil(v.holds(key, rule)), n.take("k", rule, 0).Remaining; got != 1 || left != 99 {
			t.Errorf("%v: Redis counts %v units since the reset, and %d remain; want 1 and 99", rule, got, left)
		}
	}
}

// TestPromiseSkewedClocks: the nodes' clocks are an hour off, in both
// directions; windows are decided by Redis' clock alone.
func TestPromiseSkewedClocks(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.SlidingWindow("sliding", 1000, 10*time.Second)),
		limit.Must(limit.FixedWindow("fixed", 1000, 10*time.Second)),
	} {
		s := newSim(t, 5, 3, rule)
		s.nodes[0].skew, s.nodes[1].skew = 3600_000*ms, -3600_000*ms
		s.skew = 7 * 3600_000 * ms
		s.run(2 * time.Second)
		s.run(time.Duration(int64(10*time.Second) - (s.now+s.skew)%int64(10*time.Second))) // to a boundary of Redis' windows
		from := s.now
		list := s.overload(40*time.Second, rule, 100)
		for w := range 4 {
			n := 0
			for _, a := range list {
				if (a.at-from)/int64(10*time.Second) == int64(w) {
					n++
				}
			}
			if n < 960 || n > 1041 {
				t.Errorf("%v: %d admitted in window %d of 1000", rule, n, w)
			}
		}
	}
}

// TestPromiseUnitsBeforeTheFirstAnswer: what a node admits before it knows
// Redis' clock is booked in the right window all the same.
func TestPromiseUnitsBeforeTheFirstAnswer(t *testing.T) {
	rule := limit.Must(limit.FixedWindow("fixed", 1000, time.Hour))
	s := newSim(t, 5, 2, rule)
	s.nodes[0].skew, s.nodes[1].skew = 5*3600_000*ms, -5*3600_000*ms
	for _, n := range s.nodes {
		for range 10 {
			n.take("hot", rule, 1)
		}
	}
	s.run(3 * time.Second)
	for _, w := range s.redis.windows {
		if got := w.buckets[s.now/int64(time.Hour)]; got != 20 {
			t.Errorf("Redis has %d units in its current window, want 20: %v", got, w.buckets)
		}
	}
	for _, n := range s.nodes {
		s.oracle.conserved(n)
	}
}

// TestPromiseNodesAreNotForgotten: a Redis that comes back empty does not
// know the nodes. The first to return must not take itself for the only one.
func TestPromiseNodesAreNotForgotten(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("sliding", 300, 10*time.Second))
	s := newSim(t, 6, 3, rule)
	s.run(3 * time.Second)
	s.down = true
	s.overload(2*time.Second, rule, 100)
	s.redis.wipe()
	s.down = false
	for range 100 {
		s.run(50 * time.Millisecond)
		for _, n := range s.nodes {
			if n.look().Nodes != 3 {
				t.Fatalf("%s counts %d nodes of 3", n.name, n.look().Nodes)
			}
		}
	}
	// One that really goes is missed in time.
	s.nodes[2].pause(int64(time.Hour), false)
	s.run(12 * time.Second)
	if got := s.nodes[0].look().Nodes; got != 2 {
		t.Errorf("%d nodes after one of 3 has gone", got)
	}
}

// TestPromiseFunnelAfterIdle: units taken from a leaky bucket that had long run
// empty count from now, not from when it was last used.
func TestPromiseFunnelAfterIdle(t *testing.T) {
	rule := limit.Must(limit.Funnel("funnel", 100, 1, time.Second))
	s := newSim(t, 8, 2, rule)
	s.run(2 * time.Second)
	s.nodes[0].take("hot", rule, 5)
	s.run(time.Hour)
	s.nodes[0].take("hot", rule, 60)
	s.run(time.Second)
	s.nodes[1].take("hot", rule, 0)
	s.run(time.Second)
	if lost := s.nodes[0].stats.RolledBack.Load(); lost != 0 {
		t.Errorf("%d keys taken for rolled back though nothing was lost", lost)
	}
	if res := s.nodes[1].take("hot", rule, 0); res.Remaining < 40 || res.Remaining > 43 {
		t.Errorf("the other node sees %d remaining of 100, 2 s after 60 were taken", res.Remaining)
	}
}

// TestPromiseStalledClock: a node whose clock stands still must not take for
// lost what has leaked meanwhile, and put it back for everybody.
func TestPromiseStalledClock(t *testing.T) {
	rule := limit.Must(limit.Funnel("funnel", 10, 1, time.Second))
	s := newSim(t, 8, 2, rule)
	s.run(2 * time.Second)
	a, b := s.nodes[0], s.nodes[1]
	a.take("hot", rule, 10)
	a.stopped = a.time()
	for range 40 {
		s.run(250 * time.Millisecond)
		a.take("hot", rule, 0)
		b.take("hot", rule, 0)
	}
	if lost := a.stats.RolledBack.Load(); lost != 0 {
		t.Errorf("%d keys taken for rolled back", lost)
	}
	if res := b.take("hot", rule, 0); res.Remaining < 9 {
		t.Errorf("%d remain of 10 after a drain", res.Remaining)
	}
}
