package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A shard that never gets an answer, while the others of its server do, is in an outage by
// itself.
func TestShardWithoutAnswers(t *testing.T) {
	for _, busy := range []int{1, 64} {
		s, n := lonely(t, Options{Shards: 4, SyncInterval: 10 * time.Millisecond, MaxLag: 10 * time.Millisecond}, 1, 8)
		begun, changes := s.now, n.stats.StateChanges.Load()
		rule := limit.Must(limit.TokenBucket("f", 1_000_000_000, time.Second, 1_000_000_000))
		k := keyOf(s, 2)
		s.servers[0].broken = func(shard int) bool { return shard == 2 }
		s.servers[0].silent = true
		most, alone := 0, 0
		for s.now-begun < int64(10*time.Second) {
			s.oracle.struck(s.servers[0])
			for i := range busy {
				if key := fmt.Sprint("key", i); s.keyspace().Shard(key) != 2 {
					n.take(key, rule, 1)
				}
			}
			n.take(k, rule, 1)
			s.run(2 * time.Millisecond)
			most = max(most, n.core.State().Down)
			if n.core.State().Down == 1 {
				alone++
			}
		}
		if alone == 0 {
			t.Errorf("%d keys: one shard of four got no answer for 10 s: %d state changes, up to %d shards down", busy, n.stats.StateChanges.Load()-changes, most)
		}
	}
}

// While a slow server is busy with what is new, it still gets what it has missed.
func TestMissedGoesFirst(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("f", 1_000_000_000, time.Second, 1_000_000_000))
	for _, load := range []bool{false, true} {
		s := emptySim(t, 1, Options{Shards: 64, SyncInterval: 10 * time.Millisecond, MaxLag: 10 * time.Millisecond}, 1, []*limit.Rule{rule})
		s.oracle.loose = true
		v := s.servers[0]
		v.capacity = perScript(3 * ms)
		s.excuse(v)
		n := s.addNode(Options{})
		take := func() {
			for range 10 {
				n.take(fmt.Sprint("key", s.rng.IntN(1000)), rule, 1)
			}
		}
		for range 1000 {
			take()
			s.run(time.Millisecond)
		}
		s.run(2 * time.Second)
		s.outage(true)
		for range 2000 {
			take()
			s.run(time.Millisecond)
		}
		s.outage(false)
		begun := s.now
		n.modes = nil
		for n.core.State().Mode != reconcile.Synced && s.now-begun < int64(30*time.Second) {
			if load {
				take()
			}
			s.run(time.Millisecond)
		}
		missed := 0
		for i := range s.opt.Shards {
			if n.shard(i).Missed {
				missed++
			}
		}
		if n.core.State().Mode != reconcile.Synced {
			t.Errorf("load %v: %v 30 s after the outage has ended, %d shards are not told of it", load, n.core.State(), missed)
		}
	}
}

// While one master is down, failures of another do not put heartbeats off: a node that sends
// none for three is taken for gone.
func TestHeartbeatsWhileOneIsDown(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("f", 1_000, time.Second, 1_000))
	for _, cut := range []float64{0.05, 0.15} {
		s := spread(t, Options{Shards: 64}, func(i int) int { return i % 2 }, rule)
		n := s.addNode(Options{})
		s.run(2 * time.Second)
		s.servers[1].kill()
		s.run(2 * time.Second)
		s.cut = cut
		longest, at, beats := int64(0), s.now, n.stats.Beats.Load()
		for range 10_000 {
			for range 20 {
				n.take(fmt.Sprint("key", s.rng.IntN(2000)), rule, 100)
			}
			s.run(time.Millisecond)
			longest = max(longest, s.now-at)
			if b := n.stats.Beats.Load(); b != beats {
				at, beats = s.now, b
			}
		}
		if longest > int64(2*time.Second) {
			t.Errorf("%.0f %% of the pipelines to one master break, the other is down: no heartbeat for %v", cut*100, time.Duration(longest))
		}
	}
}

// What ails the list of nodes, or one server, is not what ails another.
func TestErrorOfAnotherServer(t *testing.T) {
	for _, list := range []error{nil, errBroken, noPermission{}, &limit.KeyError{Key: "hl:nodes", Reason: "WRONGTYPE"}} {
		s := spread(t, Options{Shards: 4}, func(i int) int { return i % 2 }, reconcileRule)
		n := s.addNode(Options{})
		s.run(2 * time.Second)
		n.takeAll(16)
		s.run(5 * time.Second)
		for rounds := range 2 {
			for len(n.look().Asked) != 4 {
				s.run(time.Millisecond / 10)
			}
			is := n.look()
			beat := redisstore.Beat{Seqs: make([]int64, 4), Times: make([]time.Duration, 4), Errs: make([]error, 4)}
			for i, sh := range is.Asked { // of the second server no answer has come
				beat.Seqs[i] = is.Shards[sh].Acked
				if beat.Times[i] = time.Duration(s.servers[sh].time()); sh%2 == 1 {
					beat.Seqs[i], beat.Times[i], beat.Errs[i] = -1, 0, errLate
				}
			}
			err := list
			if list == nil {
				beat.Nodes, beat.Now, err = 1, time.Duration(s.servers[0].time()), errLate
			}
			n.step(reconcile.BeatAnswer{ID: is.Beat, Recv: n.time(), Addrs: s.addrs(), Beat: beat, Err: err})
			if st := n.core.State(); (st.Mode == reconcile.Degraded) != (rounds == 1) || rounds == 1 && (st.Reason != "timeout" || st.Down != 2) {
				t.Errorf("list: %v: %v after %d heartbeats without an answer of the other server", list, st, rounds+1)
			}
		}
	}
}

// noPermission is what Redis says to whom it does not allow a command.
type noPermission struct{}

func (noPermission) Error() string { return "NOPERM no permission" }
func (noPermission) RedisError()   {}
