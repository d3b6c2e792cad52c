package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The clock of a node and that of Redis are set, one after the other, ahead or back, between any two
// exchanges. Nothing was lost, and no node sees a loss. When the time in which a bucket or a window
// drains has passed, and a clock that was set back shows the time of before again, the limit is free.
//
// The units of a fixed window that ended before the clock was set back count again, and nodes restore them.
// The clock of a node is not set back beside a sliding window: the clock of a process never is.
//
// Fault 112: a node whose clock jumped first restored as lost what had drained in Redis by the same
// jump.
func TestClocksJumpOneAfterTheOther(t *testing.T) {
	for seed := range uint64(limittest.Cases(60, 12)) {
		rng := rand.New(rand.NewPCG(seed, 0xc10c))
		by := time.Duration(1+rng.Int64N(40)) * time.Second / 2
		if rng.IntN(4) == 0 {
			by = time.Minute
		}
		for _, r := range []*limit.Rule{
			limit.Must(limit.TokenBucket("bucket", 20, 10*time.Second, 20)),
			limit.Must(limit.TokenBucket("large", 10, time.Second, 100)),
			limit.Must(limit.SlidingWindow("window", 20, 10*time.Second)),
			limit.Must(limit.FixedWindow("fixed", 20, 10*time.Second)),
			limit.Must(limit.Quota("quota", 20, limit.Calendar{Unit: limit.Day, Zone: midnightAt(simStart + int64(30*time.Second))})),
		} {
			for _, back := range []bool{false, true} {
				for _, first := range []string{"node", "redis"} {
					d := by
					if back {
						d = -by
					}
					t.Run(fmt.Sprint(seed, r.Name(), " by ", d, " first ", first), func(t *testing.T) {
						oneAfterTheOther(t, seed, r, d, first == "node")
					})
				}
			}
		}
	}
}

// oneAfterTheOther has the clocks of a node and of Redis jump by d, once or twice.
func oneAfterTheOther(t *testing.T, seed uint64, r *limit.Rule, d time.Duration, nodeFirst bool) {
	s := emptySim(t, seed, Options{Shards: 1}, 1, []*limit.Rule{r})
	s.oracle.loose = true
	rng := rand.New(rand.NewPCG(seed, 0xc10d))
	a, v := s.addNode(Options{}), s.servers[0]
	nodes := []*simNode{a, s.addNode(Options{})}
	s.run(2 * time.Second)
	use := func(most int64) {
		for range 1 + rng.IntN(4) {
			nodes[rng.IntN(2)].take("k", r, 1+rng.Int64N(most))
			s.run(time.Duration(rng.Int64N(1500)) * time.Millisecond)
		}
	}
	ended := false
	for range 1 + rng.IntN(2) {
		use(arith.Of(r).Limit / 4)
		for i := range 2 {
			was := v.time()
			switch {
			case (i == 0) != nodeFirst:
				v.jump(int64(d))
			case d > 0 || arith.Of(r).Algorithm != arith.SlidingWindow:
				a.jump(int64(d))
			}
			ended = ended || d < 0 && arith.Of(r).Algorithm == arith.FixedWindow && arith.Of(r).Index(v.time()) < arith.Of(r).Index(was)
			use(2)
		}
	}
	for _, n := range nodes {
		if n.stats.RolledBack.Load()+n.stats.Losses.Load() > 0 && !ended {
			t.Errorf("%s sees %d keys and %d shards that Redis has lost", n.name, n.stats.RolledBack.Load(), n.stats.Losses.Load())
		}
	}
	if arith.Of(r).Algorithm == arith.CalendarQuota {
		return // a day does not end within the test
	}
	s.run(2*max(-d, 0) + time.Duration(arith.Of(r).Horizon()) + 2*time.Second)
	for _, n := range nodes {
		n.take("k", r, 0)
		s.run(2 * time.Second) // asks Redis
		if res := n.take("k", r, arith.Of(r).Limit); !res.Allowed {
			t.Errorf("%s: the limit is not free when all has drained: %+v", n.name, res)
		}
		s.run(time.Duration(arith.Of(r).Horizon()) + 2*time.Second)
	}
}

// A clock that jumps first is followed by Redis' clock, and nothing is restored: what has drained in
// Redis by the jump has drained.
func TestRedisFollowsTheClockOfANode(t *testing.T) {
	r := limit.Must(limit.TokenBucket("bucket", 10, time.Second, 100))
	const used, jump = 90, 4 * time.Second
	for _, steps := range [][]time.Duration{{jump}, {jump / 2, jump / 2}, {jump + 5*time.Second, -5 * time.Second}} {
		s := emptySim(t, 1, Options{Shards: 1}, 1, []*limit.Rule{r})
		s.oracle.loose = true
		n, v := s.addNode(Options{}), s.servers[0]
		s.run(2 * time.Second)
		n.take("k", r, used)
		s.run(time.Second)
		for _, d := range steps {
			n.jump(int64(d))
			n.take("k", r, 0)
			s.run(1200 * time.Millisecond)
		}
		v.jump(int64(jump))
		for range 2 {
			n.take("k", r, 0)
			s.run(600 * time.Millisecond)
		}
		passed := jump + time.Second + time.Duration(len(steps))*1200*time.Millisecond + 1200*time.Millisecond
		want := max(used-10*passed.Seconds(), 0)
		if got := v.holds(s.keyspace().CounterKey(r, "k"), r); got > want+1 || got < want-1 || n.stats.RolledBack.Load() > 0 {
			t.Errorf("clock of the node by %v, then Redis' by %v: Redis holds %.1f units, want %.1f; %d losses are seen", steps, jump, got, want, n.stats.RolledBack.Load())
		}
	}
}
