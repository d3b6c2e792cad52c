package sim

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// TestPromiseResetRolledBack: Redis forgets a reset and nothing else, before the node
// that has made it has reported anything since: no sequence number shows it. The node says
// so together with what it books next, which would else be booked on what was cleared.
//
// Fault 74: a reset stands after a small rollback.
func TestPromiseResetRolledBack(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.SlidingWindow("sliding", 100, time.Hour)),
		limit.Must(limit.TokenBucket("funnel", 1, time.Hour, 100)),
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

// TestPromiseStalledClock: a node whose clock stands still must not take for
// lost what has leaked meanwhile, and put it back for everybody.
func TestPromiseStalledClock(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("funnel", 1, time.Second, 10))
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
