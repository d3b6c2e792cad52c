package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Several callers on two nodes take units of a key exactly, and hand all of them back. Answers are late and overtake
// each other and the reports of refunds. In the end Redis counts none of the units, and the nodes know that.
//
// Fault 107: several exact checks at once, whose units are handed back.
func TestSimHandedBack(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.TokenBucket("bucket", 5, time.Hour, 5)),
		limit.Must(limit.SlidingWindow("sliding", 5, time.Hour)),
		limit.Must(limit.FixedWindow("fixed", 5, time.Hour)),
		limit.Must(limit.Quota("quota", 5, limit.Calendar{Unit: limit.Day})),
	} {
		for seed := range uint64(limittest.Cases(200, 40)) {
			if failure := handedBack(rule, seed); failure != "" {
				t.Fatalf("%v, seed %d: %s", rule, seed, failure)
			}
		}
	}
}

func handedBack(rule *limit.Rule, seed uint64) (failure string) {
	s := emptySim(nil, seed, Options{SyncInterval: simInterval, MaxLag: 300 * time.Millisecond, Shards: 1}, 1, []*limit.Rule{rule})
	defer func() {
		if f, ok := recover().(simFailure); ok {
			failure = fmt.Sprintf("%s\n%v", f.msg, &s.log)
		}
	}()
	k, rng := oracleKey{rule, everyKey}, rand.New(rand.NewPCG(seed, 7))
	s.exact = &exactPlay{s: s, rng: rng, allBack: true, kinds: map[oracleKey]exactKind{k: alwaysExact}, records: map[oracleKey]*exactRecord{}}
	s.far = rng.Int64N(8 * ms)
	nodes := []*simNode{s.addNode(Options{}), s.addNode(Options{})}
	s.run(100 * time.Millisecond)
	for range 400 {
		nodes[rng.IntN(2)].takeExactly(everyKey, rule, 1+rng.Int64N(2))
		s.run(time.Duration(rng.Int64N(3 * ms)))
	}
	s.run(2 * time.Second)
	v := s.servers[0]
	if holds := v.holds(s.keyspace().CounterKey(rule, everyKey), rule); holds > 0.01 {
		return fmt.Sprintf("Redis counts %.3f units\n%v", holds, &s.log)
	}
	for _, n := range nodes {
		n.takeExactly(everyKey, rule, 1) // it may be refused by what the node knew
		s.run(time.Second)
		if e, _ := n.counters[k].Explain(n.time()); e.Known != 0 || n.link.Unreturned.Load() != 0 {
			return fmt.Sprintf("%s knows %d units, %d were not handed back\n%v", n.name, e.Known, n.link.Unreturned.Load(), &s.log)
		}
	}
	return ""
}
