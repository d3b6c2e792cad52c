package sim

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What heartbeats find out, and how they are spread.

// A loss of everything is noticed in every shard within about a heartbeat, by a
// node that has nothing to send as by one that is about to, and all that it knew
// is there again.
//
// Fault 28: more shards than one heartbeat asks for; an interval that is longer
// than a heartbeat; a server that takes its time.
func TestLossIsNoticedInEveryShard(t *testing.T) {
	for name, o := range map[string]struct {
		Options
		servers int
		queued  bool
		perCall int64
		within  time.Duration
	}{
		"idle":          {Options{Shards: 64}, 1, false, 0, 1200 * time.Millisecond},
		"cluster":       {Options{Shards: 64}, 3, false, 0, 1200 * time.Millisecond},
		"unhurried":     {Options{Shards: 8, SyncInterval: 10 * time.Second}, 1, true, 0, 1200 * time.Millisecond},
		"unhurried too": {Options{Shards: 8, SyncInterval: 10 * time.Second}, 3, true, 0, 1200 * time.Millisecond},
		"slow":          {Options{Shards: 64}, 1, false, 2 * ms, 1500 * time.Millisecond},
		"many, slow":    {Options{Shards: 1024}, 1, false, 200_000, 1800 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			o.HeartbeatInterval = time.Second
			s := emptySim(t, 1, o.Options, o.servers, []*limit.Rule{reconcileRule})
			s.oracle.loose = true
			n, keys := s.addNode(Options{}), 12*o.Shards
			s.run(2 * time.Second)
			n.takeAll(keys)
			s.run(10 * time.Second)
			written := uint64(len(n.core.Written()))
			if o.queued {
				n.takeAll(keys)
				s.run(10 * time.Millisecond)
			}
			for _, v := range s.servers {
				v.capacity = perScript(o.perCall)
				v.wipe()
			}
			s.run(o.within)
			if got := n.stats.Losses.Load(); got != written {
				t.Errorf("%d shards of %d known to be lost after %v", got, written, o.within)
			}
			s.run(10 * time.Second)
			s.agreed()
		})
	}
}

// One loss is counted once. A heartbeat may be under way when Redis loses everything, and be
// answered after the batch that has repaired that. A second loss is noticed all the same.
//
// Fault 28: FLUSHALL while a heartbeat is under way, on a network that delays messages.
func TestLossIsNoticedOnce(t *testing.T) {
	overtaken := 0
	for seed := range uint64(200) {
		s, n := lonelyFrom(t, seed, Options{Shards: 1}, 1, 5)
		s.jitter = 40 * ms
		for i := range uint64(3) {
			for n.look().Beat == 0 {
				s.run(time.Millisecond / 4)
			}
			beats := n.stats.Beats.Load()
			s.redis.wipe()
			n.take("key0", reconcileRule, 600) // urgent
			for n.stats.Losses.Load() == i || n.shard(0).Lost {
				s.run(time.Millisecond / 4)
			}
			if n.look().Beat != 0 && n.stats.Beats.Load() == beats {
				overtaken++
			}
			s.run(3 * time.Second)
			if got := n.stats.Losses.Load(); got != i+1 {
				t.Fatalf("seed %d: %d losses noticed of %d", seed, got, i+1)
			}
		}
	}
	if overtaken == 0 {
		t.Error("no heartbeat was overtaken")
	}
	t.Logf("%d heartbeats were overtaken", overtaken)
}

// When one shard's loss is found the others are looked at without delay.
func TestLossOfOneShardHasAllAsked(t *testing.T) {
	s, n := lonely(t, Options{Shards: 64, HeartbeatInterval: 10 * time.Second}, 1, 1000)
	s.run(time.Minute)
	for beats := n.stats.Beats.Load(); n.stats.Beats.Load() == beats; {
		s.run(10 * time.Millisecond)
	}
	s.run(time.Second)
	s.servers[0].wipe()
	n.take("key", reconcileRule, 1) // the answer to its report shows the loss, before the next heartbeat
	for beats := n.stats.Beats.Load(); n.stats.Losses.Load() == 0; {
		if s.run(time.Millisecond); n.stats.Losses.Load() == 0 && n.stats.Beats.Load() != beats {
			t.Fatal("a heartbeat was sent first")
		}
	}
	s.run(50 * time.Millisecond)
	if got := n.stats.Losses.Load(); got != uint64(len(n.core.Written())) {
		t.Errorf("%d shards of %d known to be lost", got, len(n.core.Written()))
	}
}

// Nodes whose entries Redis has lost do not forget each other, whichever notices
// first: alone, each would take the whole limit in an outage.
func TestLossDoesNotHideNodes(t *testing.T) {
	for _, keys := range []int{0, 1, 20} {
		s := newSim(t, 6, 5, reconcileRule)
		for _, n := range s.nodes {
			n.takeAll(keys)
		}
		s.run(5 * time.Second)
		for range 3 {
			s.redis.wipe()
			for range 400 {
				s.run(5 * time.Millisecond)
				for _, n := range s.nodes {
					if n.look().Nodes != 5 {
						t.Fatalf("%d keys: %s counts %d of 5 nodes", keys, n.name, n.look().Nodes)
					}
				}
			}
		}
	}
}

// While the list of nodes is broken, a limiter that has not written anything yet
// works all the same.
//
// Fault 27: the list is broken from the start.
func TestNodeListBrokenFromTheStart(t *testing.T) {
	for seed := range uint64(12) {
		s := newSim(t, seed, 0, reconcileRule)
		s.servers[0].listless = true
		n := s.addNode(Options{})
		s.run(2 * time.Second)
		if n.core.State().Mode != reconcile.Synced {
			t.Errorf("%v", n.core.State())
		}
		n.takeAll(5)
		s.run(time.Second)
		beats := n.stats.Beats.Load()
		s.run(10 * time.Second)
		if n.core.State().Mode != reconcile.Synced || n.unsynced() != 0 {
			t.Errorf("%v, %d units unsynced", n.core.State(), n.unsynced())
		}
		if got := n.stats.Beats.Load() - beats; got > 30 {
			t.Errorf("%d heartbeats in 10 s", got)
		}
	}
}

// Fault 12: the pauses between probes are drawn at random, so that nodes which
// lost Redis together do not probe together.
func TestProbesAreSpread(t *testing.T) {
	s := newSim(t, 3, 20, reconcileRule)
	s.run(2 * time.Second)
	s.down = true
	s.run(30 * time.Second)
	slots := map[int64]int{}
	for range 2000 {
		before := make([]uint64, len(s.nodes))
		for i, n := range s.nodes {
			before[i] = n.stats.Beats.Load()
		}
		s.run(10 * time.Millisecond)
		for i, n := range s.nodes {
			if n.stats.Beats.Load() != before[i] {
				slots[s.now/(10*ms)]++
			}
		}
	}
	most, all := 0, 0
	for _, k := range slots {
		most, all = max(most, k), all+k
	}
	// 20 nodes with pauses of about a second: 0.2 in 10 ms.
	if most > 6 || all < 200 || len(slots) < all/2 {
		t.Errorf("%d probes in 20 s, up to %d in 10 ms", all, most)
	}
	for _, n := range s.nodes[:5] {
		pauses := map[int64]bool{}
		for range 12 {
			before := n.stats.Beats.Load()
			begun := s.now
			for n.stats.Beats.Load() == before {
				s.run(time.Millisecond)
			}
			pauses[(s.now-begun)/(50*ms)] = true
		}
		if len(pauses) < 4 {
			t.Errorf("%s: 12 pauses of %d lengths", n.name, len(pauses))
		}
	}
}

// A short outage that follows a long one is over as soon as any other.
func TestBackoffBeginsAnew(t *testing.T) {
	total := time.Duration(0)
	const rounds = 10
	for seed := range uint64(rounds) {
		s := newSim(t, seed, 1, reconcileRule)
		n := s.nodes[0]
		s.run(2 * time.Second)
		s.down = true
		s.run(30 * time.Second)
		s.down = false
		s.untilMode(n, reconcile.Synced)
		s.run(30 * time.Second)
		s.down = true
		s.untilMode(n, reconcile.Degraded)
		s.down = false
		total += s.untilMode(n, reconcile.Synced)
	}
	if mean := total / rounds; mean > 400*time.Millisecond {
		t.Errorf("back after %v on average", mean)
	}
}

// Half of the shards of what looks like one server fail, as behind a proxy: the
// limiter says so as long as that lasts, instead of changing its mind.
func TestHalfOfAServerFails(t *testing.T) {
	for _, shards := range []int{16, 64} {
		s, n := lonely(t, Options{Shards: shards}, 1, 500)
		s.servers[0].broken = func(shard int) bool { return shard%2 == 0 }
		s.run(20 * time.Second)
		changes := n.stats.StateChanges.Load()
		s.run(time.Minute)
		if got := n.stats.StateChanges.Load() - changes; n.core.State().Mode != reconcile.Degraded || n.core.State().Down != shards/2 || got > 2 {
			t.Errorf("%d shards: %v, %d changes in a minute", shards, n.core.State(), got)
		}
		s.servers[0].broken = nil
		s.run(10 * time.Second)
		if n.core.State().Mode != reconcile.Synced {
			t.Errorf("%d shards: %v after it was mended", shards, n.core.State())
		}
	}
}

// After a loss a single node has Redis count what it has admitted, no unit more
// or less. Of several, another may have reported to Redis again what a batch under
// way had booked before the loss; then that is booked once more, on the safe
// side, and nothing else is.
func TestLossCountsNothingTwice(t *testing.T) {
	rules := []*limit.Rule{
		limit.Must(limit.TokenBucket("f", 1, time.Hour, 100_000)),
		limit.Must(limit.SlidingWindow("w", 1_000_000, 1000*time.Hour)),
		limit.Must(limit.FixedWindow("x", 1_000_000, 100_000*time.Hour)),
	}
	for seed := range uint64(60) {
		nodes := 1 + int(seed%3)
		s := newSim(t, seed, nodes, rules...)
		s.keys = 2
		s.lossRep, s.lossReq = 0.1, 0.1
		under := map[string]int64{} // way, at a loss, by key
		for round := range 6 {
			s.load(time.Duration(300+s.rng.IntN(700))*time.Millisecond, 100)
			if round%2 == 0 {
				for _, n := range s.nodes {
					for i, c := range n.order {
						under[s.oracle.books[n.keys[i]].name] += c.Unsynced()
					}
				}
				s.redis.wipe()
			}
		}
		s.lossRep, s.lossReq = 0, 0
		s.run(10 * time.Second)
		for k, b := range s.oracle.books {
			admitted := int64(0)
			for _, a := range b.all {
				admitted += a.n
			}
			used := k.rule.Limit() - b.server.remaining(b.name, k.rule, 0)
			if nodes == 1 && used != admitted || nodes > 1 && used > admitted+under[b.name] {
				t.Errorf("seed %d, %d nodes: Redis counts %d units of %v %q, admitted were %d", seed, nodes, used, k.rule, k.key, admitted)
			}
		}
	}
}
