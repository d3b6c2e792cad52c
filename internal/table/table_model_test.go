package table

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestPeekCreatesNothing(t *testing.T) {
	table := newTable(t, Options{MaxKeys: 100, Link: counter.NewLink(pace(time.Second), 4, shardOne)})
	for i := range 1000 {
		res := table.Peek(table.clock, fmt.Sprint(i), slow(10))
		if !res.Allowed || res.Remaining != 10 || res.ResetAfter != 0 || res.Source != limit.SourceUnsynced {
			t.Fatalf("%+v", res)
		}
		if ok, _ := table.Allow(fmt.Sprint(i), slow(10), 0, int64(table.clock.Now())); !ok {
			t.Fatal("0 units refused")
		}
	}
	if s := table.Stats(); s.Live != 0 || s.Created != 0 {
		t.Errorf("%+v", s)
	}
	table.group.Link.Drain(func(*counter.Counter, bool) { t.Error("the reconciler was told") })
}

func TestRangeSeesEveryCounterThatStays(t *testing.T) {
	const keys = 500
	rule := limit.Must(limit.TokenBucket("stays", 1, 24*time.Hour, 1))
	table := newTable(t, Options{MaxKeys: 300, slack: 1 << 16})
	flood(table, rule, "stays", keys)
	var done atomic.Bool
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Go(func() {
			for i := 0; !done.Load(); i++ {
				table.Allow(fmt.Sprint("junk", g, i%5000), slow(10), 1, int64(table.clock.Now()))
			}
		})
	}
	for range 30 {
		seen := make(map[string]bool)
		table.Range(func(c *counter.Counter) bool {
			if c.Rule().Name() == rule.Name() {
				seen[c.Key()] = true
			}
			return true
		})
		for _, k := range names("stays", keys) {
			if !seen[k] {
				t.Errorf("Range did not show %q", k)
			}
		}
	}
	n := 0
	table.Range(func(*counter.Counter) bool { n++; return n < 3 })
	if n != 3 {
		t.Errorf("Range went on after false: %d", n)
	}
	done.Store(true)
	wg.Wait()
	check(t, table)
}

// model is the slow and obviously right table: a map, and nothing is ever
// dropped.
type model map[ident]*counter.Counter

type ident struct {
	alg       arith.Algorithm
	name, key string
}

// ask asks for n units, and counts them or only looks.
func (m model) ask(key string, rule *limit.Rule, n, now int64, take bool) limit.Result {
	id := ident{alg: arith.Of(rule).Algorithm, name: rule.Name(), key: key}
	c := m[id]
	if c == nil {
		c = counter.New(key, rule, 0, new(counter.Group), now)
		m[id] = c
	}
	res, _ := c.Ask(now, n, rule, take)
	return res
}

// While its room is not used up, a table decides like a plain map, although its
// tiny policy drops counters.
//
// Fault 37: random questions are answered as by a map that forgets nothing.
func TestTableDecidesLikeAMap(t *testing.T) {
	rules := []*limit.Rule{
		limit.Must(limit.TokenBucket("a", 7, 3*time.Second, 5)),
		limit.Must(limit.TokenBucket("b", 1, time.Second, 1)),
		limit.Must(limit.SlidingWindow("a", 4, time.Second)),
		limit.Must(limit.SlidingWindowBuckets("b", 3, 2*time.Second, 1)),
		limit.Must(limit.FixedWindow("a", 6, time.Second)),
		limit.Must(limit.SlidingLog("a", 3, 5*time.Second)),
		limit.Must(limit.TokenBucket("zero", 1, time.Second, 0)),
	}
	for _, maxKeys := range []int{1, 20, 1000} {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		table := newTable(t, Options{MaxKeys: maxKeys, slack: 1 << 16})
		ref := make(model)
		now := start.UnixNano()
		for i := range 10_000 {
			now += rng.Int64N(int64(20 * time.Millisecond))
			table.clock.(*clock.Manual).Set(time.Unix(0, now))
			key, rule, n := fmt.Sprint(rng.IntN(100)), rules[rng.IntN(len(rules))], rng.Int64N(4)
			want := ref.ask(key, rule, n, now, true)
			if got := table.takeAt(key, rule, n, now); got != want {
				t.Fatalf("seed %d, MaxKeys %d, step %d: %q %v %d at %d: got %+v, want %+v", seed, maxKeys, i, key, rule, n, now, got, want)
			}
			if got, want := table.Peek(at(now), key, rule), ref.ask(key, rule, 1, now, false); got != want {
				t.Fatalf("seed %d, MaxKeys %d, step %d: a look at %q %v: got %+v, want %+v", seed, maxKeys, i, key, rule, got, want)
			}
			if i%1000 == 0 {
				table.sweepForTest()
			}
		}
		check(t, table)
	}
}
