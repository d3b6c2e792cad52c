package sim

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// used returns what the server counts of keys that forget nothing.
func used(s *sim, rule *limit.Rule, keys ...string) (sum int64) {
	for _, key := range keys {
		sum += rule.Limit() - s.servers[0].remaining(s.keyspace().CounterKey(rule, key), rule, 0)
	}
	return sum
}

// keyOfShard returns a key that lives in a shard.
func keyOfShard(s *sim, shard int) string {
	for i := 'a'; ; i++ {
		if s.keyspace().Shard(string(i)) == shard {
			return string(i)
		}
	}
}

// A shard whose flight may have been booked under the old name finds that out
// under the old name: under the new one it would be booked again.
//
// Fault 77: what is under way when a copy is noticed is booked once.
func TestCopyNoticedWithAFlightUnderWay(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("w", 1000, 24*time.Hour))
	s := newSim(t, 1, 1, rule)
	n := s.nodes[0]
	here, there := keyOfShard(s, 0), keyOfShard(s, 1)
	n.take(here, rule, 1)
	n.take(there, rule, 1)
	s.run(time.Second)
	twin := n.twin()
	s.run(time.Second)
	n.wires[0].mute = true // batches are booked, but only heartbeats are answered
	n.take(here, rule, 5)
	s.run(200 * time.Millisecond)
	if got := used(s, rule, here); got != 6 || n.shard(0).Flight.Keys == 0 {
		t.Fatalf("Redis counts %d, want 6 and the flight under way", got)
	}
	twin.take(there, rule, 7)
	s.run(3 * time.Second)
	if n.stats.Renames.Load() != 1 || n.shard(0).Node == n.core.Node() || n.shard(1).Node != n.core.Node() {
		t.Fatalf("renamed %d times, the shards go by %q and %q, the node by %q",
			n.stats.Renames.Load(), n.shard(0).Node, n.shard(1).Node, n.core.Node())
	}
	n.wires[0].mute = false
	s.run(5 * time.Second)
	n.take(here, rule, 1)
	n.take(there, rule, 1)
	s.run(5 * time.Second)
	if got := used(s, rule, here, there); got != 16 {
		t.Errorf("Redis counts %d units, admitted were 16", got)
	}
	for i := range 2 {
		if sh := n.shard(i); sh.Node != n.core.Node() || sh.Acked == 0 || sh.Acked > 2 {
			t.Errorf("shard %d goes by %q and the number %d, the node by %q", i, sh.Node, sh.Acked, n.core.Node())
		}
	}
	if n.look().Nodes != 2 || twin.look().Nodes != 2 {
		t.Errorf("they count %d and %d nodes", n.look().Nodes, twin.look().Nodes)
	}
}

// Whoever waits for a flush is answered although its flights have begun to be
// counted anew meanwhile.
func TestFlushWhileACopyIsNoticed(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("w", 1000, 24*time.Hour))
	s := newSim(t, 1, 1, rule)
	n := s.nodes[0]
	key := keyOfShard(s, 0)
	for range 10 {
		n.take(key, rule, 1)
		s.run(time.Second)
	}
	twin := n.twin()
	twin.take(key, rule, 1)
	s.run(200 * time.Millisecond)
	n.take(key, rule, 1)
	n.flush()
	s.run(2 * time.Second)
	if booked, done := n.flushed[n.asked]; !booked {
		t.Errorf("flushed %v, booked %v", done, booked)
	}
	if got := used(s, rule, key); got != 12 || n.stats.Renames.Load() != 1 {
		t.Errorf("Redis counts %d units of 12, renamed %d times", got, n.stats.Renames.Load())
	}
}

// A loss is none because a name is new, and one that a heartbeat shows together
// with the copy is not missed.
//
// The lag is long: else all that is asked for is old enough to be asked for again.
func TestCopyAndLoss(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("w", 1000, 24*time.Hour))
	s := emptySim(t, 1, Options{SyncInterval: simInterval, MaxLag: 50 * simInterval, HeartbeatInterval: simHeartbeat, Shards: simShards}, 1, []*limit.Rule{rule})
	s.oracle.loose = true
	n := s.addNode(Options{})
	keys := []string{keyOfShard(s, 0), keyOfShard(s, 1)}
	for _, key := range keys {
		n.take(key, rule, 10)
	}
	s.run(time.Second)
	twin := n.twin()
	twin.take(keys[0], rule, 1)
	s.run(3 * time.Second)
	if n.stats.Renames.Load() != 1 || n.stats.Losses.Load() != 0 {
		t.Errorf("renamed %d times, %d losses", n.stats.Renames.Load(), n.stats.Losses.Load())
	}
	third := n.twin()
	s.run(10 * time.Millisecond)
	quiet := keyOfShard(s, 2) // booked under the old name, and not under way when there is a new one
	n.take(quiet, rule, 1)
	n.step(reconcile.Flush{ID: 1})
	s.run(10 * time.Millisecond)
	third.take(keys[0], rule, 1)
	third.flush() // first, so that it is the other one that is not booked, and has a new name
	s.run(10 * time.Millisecond)
	n.take(keys[0], rule, 1)
	n.take(keys[1], rule, 1)
	n.step(reconcile.Flush{ID: 2})
	s.run(2 * time.Second)
	if got := n.stats.Renames.Load(); got != 2 {
		t.Errorf("renamed %d times, want 2", got)
	}
	s.servers[0].wipe()
	s.run(5 * time.Second)
	if got := used(s, rule, append(keys, quiet)...); got != 25 {
		t.Errorf("Redis counts %d units after it was told anew, want 25", got)
	}
}
