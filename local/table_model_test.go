package local

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter forgotten on its way into the cache is found there later, dead.
// It must neither answer nor keep its key's next counter out for ever.
func TestForgottenOnTheWayIn(t *testing.T) {
	rule := slow(10)
	for _, recreate := range []bool{false, true} {
		table := newTable(t, TableOptions{MaxKeys: 16})
		now := int64(table.clock.Now())
		h := table.hashOf("k", rule)
		c := newCounter("k", rule, h, nil, now)
		c.allow(now, 4, rule)
		c.dead = true
		if recreate {
			admit(table, "k", rule, 1, 3) // queued behind, in effect
			settle(t, table)
			for _, c := range []*Counter{table.view.Load().get(h), table.recent.Load().get(h)} {
				if c != nil {
					c.lock()
					c.dead = true
					c.mu.Unlock()
				}
			}
			table.cache.Del(h)
		}
		until(t, "the dead counter to be cached", func() bool {
			table.cache.Set(h, c, 0)
			table.cache.Wait()
			return table.view.Load().get(h) == c
		})
		want := int64(6)
		if recreate {
			want = 3 // 10 − 4 − 3: revived, unless the other is in the side table
			sh := table.shard(h)
			sh.mu.Lock()
			twin := newCounter("k", rule, h, nil, now)
			twin.allow(now, 7, rule)
			table.putLocked(sh, twin)
			sh.mu.Unlock()
			table.promote(twin)
			if table.view.Load().get(h) != twin {
				t.Error("the slot was not taken over")
			}
			table.promote(twin)
			if table.stats.side.Load() != 0 {
				t.Error("still in the side table")
			}
		}
		if got := admit(table, "k", rule, 1, 20); got != want {
			t.Errorf("recreated %v: admitted %d, want %d", recreate, got, want)
		}
		table.Close()
	}
}

func TestPeekCreatesNothing(t *testing.T) {
	table := newTable(t, TableOptions{MaxKeys: 100, Link: NewLink(pace(time.Second), 4)})
	for i := range 1000 {
		res := table.Peek(fmt.Sprint(i), slow(10), 1, int64(table.clock.Now()))
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
	table.link.Drain(func(*Counter, bool) { t.Error("the reconciler was told") })
}

func TestIdleCountersLeaveTheSideTable(t *testing.T) {
	table := newTable(t, TableOptions{MaxKeys: 10})
	rule := limit.Must(limit.Funnel("fast", 1, 1, time.Second))
	flood(table, rule, "k", 1000)
	settle(t, table)
	if s := table.Stats(); s.Side < 900 {
		t.Fatalf("exhausted keys did not stay: %+v", s)
	}
	table.clock.(*clock.Manual).Advance(2 * time.Second)
	table.sweepForTest()
	if s := table.Stats(); s.Side != 0 || s.Live > 10 {
		t.Errorf("idle keys did not leave: %+v", s)
	}
	check(t, table)
}

func TestRangeSeesEveryCounterThatStays(t *testing.T) {
	const keys = 500
	rule := limit.Must(limit.Funnel("stays", 1, 1, 24*time.Hour))
	table := newTable(t, TableOptions{MaxKeys: 300, sideKeys: 1 << 16})
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
		table.Range(func(c *Counter) bool {
			if c.name() == rule.Name() {
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
	table.Range(func(*Counter) bool { n++; return n < 3 })
	if n != 3 {
		t.Errorf("Range went on after false: %d", n)
	}
	done.Store(true)
	wg.Wait()
	check(t, table)
}

// model is the slow and obviously right table: a map, and nothing is ever
// dropped.
type model map[ident]*Counter

func (m model) take(key string, rule *limit.Rule, n, now int64) limit.Result {
	id := ident{alg: rule.Algorithm(), name: rule.Name(), key: key}
	c := m[id]
	if c == nil {
		c = newCounter(key, rule, 0, nil, now)
		m[id] = c
	}
	res, _ := c.take(now, n, rule)
	return res
}

// While capacity is not exceeded, a table decides like a plain map, evictions
// from its tiny cache notwithstanding.
//
// Fault 37: random questions are answered as by a map that forgets nothing.
func TestTableDecidesLikeAMap(t *testing.T) {
	rules := []*limit.Rule{
		limit.Must(limit.Funnel("a", 5, 7, 3*time.Second)),
		limit.Must(limit.Funnel("b", 1, 1, time.Second)),
		limit.Must(limit.SlidingWindow("a", 4, time.Second)),
		limit.Must(limit.SlidingWindowBuckets("b", 3, 2*time.Second, 1)),
		limit.Must(limit.FixedWindow("a", 6, time.Second)),
		limit.Must(limit.SlidingLog("a", 3, 5*time.Second)),
		limit.Must(limit.Funnel("zero", 0, 1, time.Second)),
	}
	for _, maxKeys := range []int{1, 20, 1000} {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		table := newTable(t, TableOptions{MaxKeys: maxKeys, sideKeys: 1 << 16})
		ref := make(model)
		now := start.UnixNano()
		for i := range 10_000 {
			now += rng.Int64N(int64(20 * time.Millisecond))
			table.clock.(*clock.Manual).Set(time.Unix(0, now))
			key, rule, n := fmt.Sprint(rng.IntN(100)), rules[rng.IntN(len(rules))], rng.Int64N(4)
			want := ref.take(key, rule, n, now)
			if got := table.Take(key, rule, n, now); got != want {
				t.Fatalf("seed %d, MaxKeys %d, step %d: %q %v %d at %d: got %+v, want %+v", seed, maxKeys, i, key, rule, n, now, got, want)
			}
			if i%1000 == 0 {
				table.sweepForTest()
			}
		}
		check(t, table)
	}
}

// Everything at once; the checks at the end are what counts.
//
// Faults 37, 39: everything at once, then the table's invariants.
func TestTableStress(t *testing.T) {
	rule := limit.Must(limit.Funnel("stress", 3, 1000, time.Second))
	table := newTable(t, TableOptions{MaxKeys: 100, sideKeys: 512, Clock: clock.System{}})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			for i := range 20_000 {
				key := fmt.Sprint(rng.IntN(2000))
				now := int64(table.clock.Now())
				switch rng.IntN(10) {
				case 0:
					table.Peek(key, rule, 1, now)
				case 1:
					table.Take(key, rule, rng.Int64N(3), now)
				default:
					table.Allow(key, rule, 1, now)
				}
				if i%5000 == 0 {
					table.Range(func(c *Counter) bool { return c.Key() != "" })
					table.Stats()
				}
			}
		})
	}
	wg.Wait()
	settle(t, table)
	check(t, table)
	if s := table.Stats(); s.Merged != 0 {
		t.Errorf("%+v", s)
	}
}

// A counter may take over the slot of a dead one, and only by replaceDead.
func TestSlotOfALiveCounterIsItsOwn(t *testing.T) {
	table := newTable(t, TableOptions{MaxKeys: 16, hash: func(string, *limit.Rule) uint64 { return 3 }})
	admit(table, "first", slow(10), 1, 4)
	settle(t, table)
	first := table.view.Load().get(3)
	other := newCounter("other", slow(10), 3, nil, 0)
	table.replacing.Store(other)
	for range 2 {
		table.cache.Set(3, other, 1)
		table.cache.Wait()
		if table.view.Load().get(3) != first {
			t.Fatal("a live counter lost its slot")
		}
		table.replacing.Store(nil)
	}
	if got := admit(table, "first", slow(10), 1, 10); got != 6 {
		t.Errorf("admitted %d more, want 6", got)
	}
}

// If there are two counters after all, they become one, and count what both did.
func TestTwinsMerge(t *testing.T) {
	rule := slow(10)
	table := newTable(t, TableOptions{MaxKeys: 16})
	now := int64(table.clock.Now())
	admit(table, "k", rule, 1, 4)
	lost := newCounter("k", rule, table.hashOf("k", rule), nil, now)
	table.stats.live.Add(1)
	lost.allow(now, 5, rule)
	settle(t, table)
	sh := table.shard(lost.hash)
	sh.mu.Lock() // bring the first one home, whatever has become of it
	if c, aside := table.seenLocked(sh, lost.hash, lost.ident()); !aside {
		table.putLocked(sh, c)
	}
	sh.mu.Unlock()
	table.takeBack(lost, now)
	if got := admit(table, "k", rule, 1, 10); got != 1 {
		t.Errorf("admitted %d more, want 1", got)
	}
	if _, _, how := lost.allow(now, 1, rule); how != gone {
		t.Error("the merged counter still answers")
	}
	check(t, table)
}
