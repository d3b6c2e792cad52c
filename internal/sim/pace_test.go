package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What the reconciler does that no invariant speaks of: when, how often, and
// how much at a time.

var reconcileRule = limit.Must(limit.SlidingWindow("sliding", 1000, time.Hour))

// lonely returns a world of one node with so many keys in use, all reported.
func lonely(t *testing.T, o Options, servers, keys int) (*sim, *simNode) {
	return lonelyFrom(t, 1, o, servers, keys)
}

// lonelyFrom is lonely with a seed.
func lonelyFrom(t *testing.T, seed uint64, o Options, servers, keys int) (*sim, *simNode) {
	s := emptySim(t, seed, o, servers, []*limit.Rule{reconcileRule})
	s.oracle.loose = true
	s.addNode(Options{})
	n := s.nodes[0]
	s.run(2 * time.Second)
	n.takeAll(keys)
	s.run(2 * time.Second)
	if n.core.State().Mode != reconcile.Synced || n.unsynced() != 0 {
		t.Fatalf("%v, %d units unsynced", n.core.State(), n.unsynced())
	}
	return s, n
}

func (n *simNode) takeAll(keys int) {
	for i := range keys {
		n.take(fmt.Sprint("key", i), reconcileRule, 1)
	}
}

// untilMode lets time pass until the node is in a mode, and returns how much.
func (s *sim) untilMode(n *simNode, m reconcile.Mode) time.Duration {
	begun := s.now
	for n.core.State().Mode != m {
		if s.now-begun > int64(time.Minute) {
			s.t.Fatalf("%v after a minute, want %v", n.core.State(), m)
		}
		s.run(time.Millisecond)
	}
	return time.Duration(s.now - begun)
}

// A Redis that stays away is asked less and less often.
func TestProbesBackOff(t *testing.T) {
	s, n := lonely(t, Options{MaxBackoff: 2 * time.Second}, 1, 1)
	s.down = true
	s.untilMode(n, reconcile.Degraded)
	s.run(10 * time.Second)
	before := n.stats.Beats.Load()
	s.run(time.Minute)
	// Pauses of 0.1 s to 2 s.
	if got := n.stats.Beats.Load() - before; got < 30 || got > 150 {
		t.Errorf("%d probes in a minute", got)
	}
}

// What has waited for Redis is reported a few shards at a time, with pauses.
func TestBacklogIsPaced(t *testing.T) {
	const shards = 64
	s, n := lonely(t, Options{Shards: shards}, 1, 500)
	s.down = true
	n.takeAll(500)
	s.untilMode(n, reconcile.Degraded)
	n.takeAll(500) // what was taken before has been sent, and is sent again
	s.run(time.Second)
	s.down = false
	s.untilMode(n, reconcile.Resyncing)
	const perPipeline, pause = 4, 5 * time.Millisecond
	least := (shards/perPipeline - 1) * pause
	if took := s.untilMode(n, reconcile.Synced); took < least*3/4 {
		t.Errorf("a backlog in %d shards was told within %v, want %v", shards, took, least)
	}
}

// No batch is longer than it may be.
func TestBatchesAreBounded(t *testing.T) {
	s, n := lonely(t, Options{Shards: 1, MaxBatch: 3}, 1, 100)
	n.takeAll(100)
	for range 500 {
		s.run(time.Millisecond)
		if f := n.shard(0).Flight; f.Keys > 3 {
			t.Fatalf("a batch of %d keys", f.Keys)
		}
	}
	if keys, batches := n.stats.KeysSynced.Load(), n.stats.Batches.Load(); keys < 200 || keys > 3*batches {
		t.Errorf("%d keys in %d batches", keys, batches)
	}
}

// A batch with something urgent in it is to be answered soon: what can wait fills it to a
// quarter of what it may carry, and goes with the next ones.
func TestUrgentBatchesAreSmall(t *testing.T) {
	const most, interval = 20, 10 * time.Millisecond
	s, n := lonely(t, Options{Shards: 1, MaxBatch: most, SyncInterval: interval}, 1, 0)
	s.servers[0].freeze()
	n.take("first", reconcileRule, 1)
	s.run(time.Millisecond) // it is under way, and the others wait for it
	n.takeAll(2 * most)
	n.take("urgent", reconcileRule, 600)
	s.run(2 * interval)
	s.servers[0].thaw()
	var sizes []int
	for seq := n.shard(0).Seq; n.unsynced() > 0; s.run(time.Millisecond / 10) {
		sh := n.shard(0)
		if sh.Flight.Keys == 0 || sh.Seq == seq {
			continue
		}
		if seq = sh.Seq; len(sizes) == 0 && sh.Flight.First != "urgent" {
			t.Errorf("%q goes before what is urgent", sh.Flight.First)
		}
		sizes = append(sizes, sh.Flight.Keys)
	}
	if want := []int{most / 4, most, 1 + 2*most - most/4 - most}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v keys, want %v", sizes, want)
	}
}

// A server of a Cluster that hangs holds up none of the others: no pipeline is for two.
func TestPipelinesAreForOneServer(t *testing.T) {
	s, n := lonely(t, Options{Shards: 8, DegradeAfter: 100}, 2, 16)
	s.servers[1].freeze()
	pipes := [2]int{}
	for range 3000 {
		n.takeAll(16)
		s.run(time.Millisecond)
		for _, shards := range n.look().Pipelines {
			v := s.serverOf(shards[0])
			pipes[v.id]++
			for _, sh := range shards {
				if s.serverOf(sh) != v {
					t.Fatalf("a pipeline with the shards %v, of which %d is on another server than %d", shards, sh, shards[0])
				}
			}
		}
	}
	if pipes[0] < 10 || pipes[1] < 100 {
		t.Errorf("pipelines to the two servers: %v", pipes)
	}
	for i := range s.opt.Shards {
		sh := n.server(i)
		if well := s.serverOf(i).id == 0; well != (sh.FailedRounds == 0) {
			t.Errorf("shard %d, server %d: %d rounds have failed", i, s.serverOf(i).id, sh.FailedRounds)
		}
		if sh.Address != s.addrs()[i] || len(sh.Shards) != 4 {
			t.Errorf("shard %d is on %q with %v", i, sh.Address, sh.Shards)
		}
	}
}

// A counter that was waiting to be reported at once when Redis went away can be
// urgent again when it is back.
func TestUrgentAfterAnOutage(t *testing.T) {
	s, n := lonely(t, Options{Shards: 1, SyncInterval: 10 * time.Second}, 1, 0)
	s.down = true
	n.take("first", reconcileRule, 600) // more than its share
	s.run(2 * time.Millisecond)         // on its way, and its fate is unknown
	n.take("second", reconcileRule, 600)
	s.untilMode(n, reconcile.Degraded)
	s.run(time.Second)
	s.down = false
	s.untilMode(n, reconcile.Synced)
	s.run(20 * time.Second)
	if n.unsynced() != 0 {
		t.Fatalf("%d units unsynced", n.unsynced())
	}
	for _, key := range []string{"first", "second"} {
		n.take(key, reconcileRule, 300) // more than its share of what is left
		s.run(20 * time.Millisecond)
		if n.unsynced() != 0 {
			t.Errorf("%q: %d units wait for their turn, though the key is near its limit", key, n.unsynced())
		}
	}
}

// A server that stalls fails all exchanges that are under way, and is not away because of
// that: they are one round. The next that fails is another.
//
// Fault 81: one stall fails a batch and a heartbeat, and degrades nobody.
func TestOneStallIsOneRound(t *testing.T) {
	s, n := lonely(t, Options{Shards: 1, HeartbeatInterval: 300 * time.Millisecond}, 1, 1)
	s.servers[0].freeze()
	for n.look().Beat == 0 {
		s.run(time.Millisecond / 4)
	}
	n.take("key0", reconcileRule, 600) // urgent
	for n.stats.Failures.Load() < 2 {
		s.run(time.Millisecond / 4)
	}
	if n.core.State().Mode != reconcile.Synced {
		t.Errorf("%v after a batch and a heartbeat that were under way at once", n.core.State())
	}
	s.run(500 * time.Millisecond)
	if n.core.State().Mode != reconcile.Degraded {
		t.Errorf("%v though nothing is answered any more", n.core.State())
	}
}

// A second loss is noticed like the first.
func TestLostTwice(t *testing.T) {
	s, n := lonely(t, Options{Shards: 1}, 1, 5)
	for i := range uint64(3) {
		s.redis.wipe()
		s.run(3 * time.Second)
		if got := n.stats.Losses.Load(); got != i+1 {
			t.Errorf("%d losses seen of %d", got, i+1)
		}
		if got := len(s.redis.windows); got != 5 {
			t.Errorf("Redis has been told of %d of 5 keys", got)
		}
		n.takeAll(5)
		s.run(time.Second)
	}
}

// Nodes return after an outage to a server that needs longer than CommandTimeout for
// a heartbeat, and stay, also when it is unknown which shards are on it.
//
// Fault 10: three nodes, and a server that takes 4 ms for every script.
func TestNodesReturnToASlowServer(t *testing.T) {
	for _, unmapped := range []bool{false, true} {
		s := onASlowServer(t, func(s *sim) { s.unmapped = unmapped })
		s.run(20 * time.Second)
		for _, n := range s.nodes {
			if unmapped {
				s.oracle.struck(s.servers[0])
			}
			n.staysSynced(fmt.Sprintf("unknown client %v: ", unmapped))
		}
	}
}

// onASlowServer returns three nodes with 64 shards after an outage, and a server that takes
// 4 ms for every script by then.
func onASlowServer(t *testing.T, prepare func(*sim)) *sim {
	t.Helper()
	s := emptySim(t, 1, Options{Shards: 64, SyncInterval: simInterval}, 1, []*limit.Rule{reconcileRule})
	s.oracle.loose = true
	prepare(s)
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
	s.untilMode(s.nodes[0], reconcile.Degraded)
	s.down = false
	for _, n := range s.nodes {
		n.takeAll(100)
	}
	return s
}

// staysSynced checks that a node has no outage in 10 s, and nothing to report after that.
func (n *simNode) staysSynced(what string) {
	n.s.t.Helper()
	changes := n.stats.StateChanges.Load()
	n.s.run(10 * time.Second)
	if n.core.State().Mode != reconcile.Synced || n.unsynced() != 0 || n.stats.StateChanges.Load() != changes {
		n.s.t.Errorf("%s%s: %v, %d units unsynced, %d state changes", what, n.name, n.core.State(), n.unsynced(), n.stats.StateChanges.Load()-changes)
	}
}

// Heartbeats that are answered do not make up for batches that are not, not even within the longest
// deadline: the first attempts have one deadline each, then 2, 4 and 8.
func TestBatchesThatAreNeverAnswered(t *testing.T) {
	for _, servers := range []int{1, 2} {
		s, n := lonely(t, Options{Shards: 8, HeartbeatInterval: 300 * time.Millisecond, SyncInterval: simInterval}, servers, 50)
		for i := range n.wires {
			n.wires[i].mute = true
		}
		begun, was := s.now, n.stats.StateChanges.Load()
		for n.core.State().Mode != reconcile.Degraded && s.now-begun < int64(time.Minute) {
			n.takeAll(3)
			s.run(20 * time.Millisecond)
		}
		most := (1+1+2+4+8)*s.opt.CommandTimeout + 4*simRetry*3/2 + s.opt.SyncInterval + 5*100*time.Millisecond // the driver waits for so much longer than a deadline
		if took := time.Duration(s.now - begun); took > most+20*time.Millisecond {
			t.Errorf("%d servers: noticed after %v, want %v at most", servers, took, most)
		}
		batches := n.stats.Batches.Load()
		for range 3000 {
			n.takeAll(3)
			s.run(20 * time.Millisecond)
		}
		changes := n.stats.StateChanges.Load() - was
		if got := n.stats.Batches.Load() - batches; changes > 5 || got > 8*150 {
			t.Errorf("%d servers: %d state changes, %d batches in a minute", servers, changes, got)
		}
		for i := range n.wires {
			n.wires[i] = wire{}
		}
		s.run(5 * time.Second)
		if n.core.State().Mode != reconcile.Synced || n.unsynced() != 0 {
			t.Errorf("%d servers: %v, %d units unsynced, after all had healed", servers, n.core.State(), n.unsynced())
		}
	}
}

// Batches of which three attempts are not answered are no outage while heartbeats are answered: they
// may just take Redis long. They are booked once.
func TestBatchesThatAreAnsweredLate(t *testing.T) {
	s, n := lonely(t, Options{Shards: 8, SyncInterval: simInterval}, 1, 50)
	changes, failures := n.stats.StateChanges.Load(), n.stats.Failures.Load()
	n.wires[0].mute = true
	n.takeAll(50)
	s.run(700 * time.Millisecond) // two attempts have failed, and the third will
	n.wires[0].mute = false
	n.staysSynced("")
	if got := n.stats.StateChanges.Load() - changes; got > 0 {
		t.Errorf("%d changes of state", got)
	}
	if got := n.stats.Failures.Load() - failures; got < 3 {
		t.Errorf("%d exchanges have failed", got)
	}
	for i := range 50 {
		key := s.keyspace().CounterKey(reconcileRule, fmt.Sprint("key", i))
		if got := s.servers[0].model.windows[key].sum(); got != 2 {
			t.Errorf("Redis counts %d of key%d, want 2", got, i)
		}
	}
}
