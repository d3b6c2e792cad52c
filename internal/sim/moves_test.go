package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// spread lists the servers shard by shard, so that shards can move: s.servers[i] is the
// server of shard i. Data moves along, because all share one model.
func spread(t *testing.T, o Options, of func(shard int) int, rules ...*limit.Rule) *sim {
	s := emptySim(t, 1, o, o.Shards, rules)
	s.oracle.loose = true
	first := slices.Clone(s.servers)
	for _, v := range first {
		v.model = s.redis
	}
	for i := range s.servers {
		s.servers[i] = first[of(i)]
	}
	s.excuse(first...)
	return s
}

// excuse has the oracle take it for given that servers are not well.
func (s *sim) excuse(list ...*simServer) {
	for _, v := range list {
		s.oracle.struck(v)
	}
	s.after(int64(time.Second)/2, func() { s.excuse(list...) })
}

// keyOf returns a key of a shard.
func keyOf(s *sim, shard int) string {
	for i := 0; ; i++ {
		if k := fmt.Sprint("k", i); s.keyspace().Shard(k) == shard {
			return k
		}
	}
}

// A slot moves to a master whose clock is an hour ahead. The shards that stay go on by their
// own master's.
func TestClockOfAShardThatMoves(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("w", 100, 10*time.Minute))
	s := spread(t, Options{Shards: 4}, func(i int) int { return i % 2 }, rule)
	a := s.servers[0]
	a.clock.base += int64(time.Hour) // A is ahead
	n := s.addNode(Options{})
	s.run(2 * time.Second)
	stays, moves := keyOf(s, 1), keyOf(s, 3) // on B
	for range 150 {
		n.take(stays, rule, 1)
		n.take(moves, rule, 1)
		s.run(10 * time.Millisecond)
	}
	s.run(3 * time.Second)
	off := int64(n.server(1).Offset)
	if n.take(stays, rule, 1).Allowed {
		t.Fatal("the limit is not used up")
	}
	s.servers[3] = a // the slot of shard 3 has moved to A, the client knows
	again, worst := 0, int64(0)
	for range 3000 {
		s.run(time.Millisecond)
		if d := int64(n.server(1).Offset) - off; max(d, -d) > max(worst, -worst) {
			worst = d
		}
		if n.take(stays, rule, 1).Allowed {
			again++
		}
	}
	if again > 0 || max(worst, -worst) > int64(time.Second) {
		t.Errorf("shard 1 has stayed on B: its clock was taken to be %v off, and %d units were admitted above a limit of 100", time.Duration(worst), again)
	}
}

// The same, while the shard that moves is in use: an answer to a batch shows the other clock
// before a heartbeat does.
func TestReplyFromWhereAShardIsNow(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("f", 1_000_000, time.Hour, 1000))
	for _, moving := range []int{3, 5} { // whichever is asked first
		s := spread(t, Options{Shards: 8}, func(i int) int { return i % 2 }, rule)
		a := s.servers[0]
		a.clock.base += int64(time.Hour)
		n := s.addNode(Options{})
		s.run(2 * time.Second)
		stays, moves := keyOf(s, 8-moving), keyOf(s, moving)
		use := func() {
			n.take(stays, rule, 1)
			n.take(moves, rule, 1)
			s.run(10 * time.Millisecond)
		}
		for range 300 {
			use()
		}
		off := int64(n.server(8 - moving).Offset)
		s.servers[moving] = a
		worst, wrong := int64(0), 0
		for range 300 {
			use()
			d := int64(n.server(8-moving).Offset) - off
			if d = max(d, -d); d > int64(time.Second) {
				wrong++
			}
			worst = max(worst, d)
		}
		if wrong > 0 {
			t.Errorf("shard %d has stayed: for %d ms of 3 s the clock of its server was taken to be %v off", 8-moving, wrong*10, time.Duration(worst))
		}
	}
}

// The same, while the client goes on saying that the shard is where it was.
func TestClientThatIsOutOfDate(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("f", 1_000_000, time.Hour, 1000))
	s := spread(t, Options{Shards: 8}, func(i int) int { return i % 2 }, rule)
	a := s.servers[0]
	a.clock.base += int64(time.Hour)
	n := s.addNode(Options{})
	s.run(2 * time.Second)
	stays, moves := keyOf(s, 5), keyOf(s, 3)
	use := func() {
		n.take(stays, rule, 1)
		n.take(moves, rule, 1)
		s.run(10 * time.Millisecond)
	}
	for range 300 {
		use()
	}
	s.outdated = s.addrs()
	s.servers[3] = a
	for range 150 { // until it is reported next
		use()
	}
	wrong := 0
	for range 500 {
		use()
		if d := int64(n.server(3).Offset) - int64(n.server(0).Offset); max(d, -d) > int64(time.Second) {
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("for %d ms of 5 s the clock of a shard was taken to be that of the master on which it was", wrong*10)
	}
	s.outdated = nil
	s.run(3 * time.Second)
	if got := len(n.look().Servers); got != 2 {
		t.Errorf("shards are grouped as %v", n.groups())
	}
}

// Shards move between three masters that die and return, over connections that lose. In the
// end each unit is booked once, and nothing is left of it all.
func TestShardsThatMoveAllTheTime(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("f", 1_000_000_000, time.Second, 1_000_000_000))
	for seed := range 20 {
		s := spread(t, Options{Shards: 16, SyncInterval: simInterval}, func(i int) int { return i % 3 }, rule)
		first := []*simServer{s.servers[0], s.servers[1], s.servers[2]}
		n := s.addNode(Options{})
		for range seed * 7 {
			s.rng.Int64()
		}
		s.lossRep, s.lossReq, s.cut, s.dup = 0.05, 0.05, 0.1, 0.05
		for round := range 400 {
			for i := range 3 {
				n.take(fmt.Sprint("key", s.rng.IntN(64)), rule, 1+int64(i))
			}
			s.run(time.Duration(s.rng.Int64N(int64(300 * time.Millisecond))))
			if s.rng.IntN(4) == 0 {
				for k := range s.rng.IntN(16) {
					if k == 0 {
						continue
					}
					i := 3 + s.rng.IntN(13)
					s.servers[i] = first[s.rng.IntN(3)]
				}
			}
			if v := first[s.rng.IntN(3)]; s.rng.IntN(20) == 0 {
				if v.killed {
					v.restart()
				} else {
					v.kill()
				}
			}
			if round%5 == 0 {
				n.flush()
			}
		}
		for _, v := range first {
			if v.killed {
				v.restart()
			}
		}
		s.rates = rates{}
		s.run(15 * time.Second)
		if n.core.State().Mode != reconcile.Synced || n.core.State().Down != 0 || len(n.look().Servers) != 3 {
			t.Errorf("seed %d: %v %v", seed, n.core.State(), n.groups())
		}
		s.reportedOnce()
		is := n.look()
		if uint64(len(n.flushed)) != n.asked || is.Flushes > 0 {
			t.Errorf("%d of %d flushes have ended", len(n.flushed), n.asked)
		}
		for _, v := range is.Servers {
			if v.Slots != simPipelines || v.Paced || v.FailedRounds != 0 {
				t.Errorf("%+v", v)
			}
		}
		if is.Outage || is.Overdue != 0 {
			t.Errorf("in an outage: %v, %d calls overdue", is.Outage, is.Overdue)
		}
		for i := range is.Shards {
			if is.Shards[i].Multiplied || is.Shards[i].Missed {
				t.Error("costs", i)
			}
		}
	}
}
