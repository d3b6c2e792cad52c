package table

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// admit asks for one unit of key calls times from each of some goroutines and
// returns how many were admitted.
func admit(t *Table, key string, rule *limit.Rule, goroutines, calls int) int64 {
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range calls {
				if ok, _ := t.Allow(key, rule, 1, int64(t.clock.Now())); ok {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return admitted.Load()
}

// flood asks once for each of n keys that nobody else uses.
func flood(t *Table, rule *limit.Rule, prefix string, n int) {
	for i := range n {
		t.Allow(fmt.Sprintf("%s %d", prefix, i), rule, 1, int64(t.clock.Now()))
	}
}

// Promise 1: one key has one live counter.
//
// Fault 36: exactly the limit, from one goroutine and from sixteen.
func TestNewKeyAdmitsExactlyItsLimit(t *testing.T) {
	rules := map[string]*limit.Rule{
		"funnel": slow(10),
		"window": limit.Must(limit.SlidingWindow("window", 10, time.Hour)),
		"fixed":  limit.Must(limit.FixedWindow("fixed", 10, time.Hour)),
		"quota":  limit.Must(limit.Quota("quota", 10, limit.Calendar{Unit: limit.Month})),
		"log":    limit.Must(limit.SlidingLog("log", 10, time.Hour)),
	}
	for name, rule := range rules {
		for _, goroutines := range []int{1, 16} {
			t.Run(fmt.Sprintf("%s/%d", name, goroutines), func(t *testing.T) {
				table := newTable(t, Options{MaxKeys: 1000})
				for round := range 20 {
					if got := admit(table, fmt.Sprint("new", round), rule, goroutines, 1000); got != 10 {
						t.Fatalf("round %d: admitted %d of limit 10", round, got)
					}
				}
				check(t, table)
			})
		}
	}
}

// The same while other goroutines fill a small table with junk, so that counters are
// evicted all the time.
//
// Faults 36, 37: new keys while counters are evicted.
func TestNewKeyAdmitsExactlyItsLimitInAFlood(t *testing.T) {
	const keys = 200
	rule := slow(10)
	table := newTable(t, Options{MaxKeys: 256, MaxRemembered: 1 << 22}) // no key is displaced
	var done atomic.Bool
	var junk sync.WaitGroup
	for g := range 4 {
		junk.Go(func() {
			for i := 0; !done.Load(); i++ {
				table.Allow(fmt.Sprintf("junk %d %d", g, i), rule, 1, int64(table.clock.Now()))
			}
		})
	}
	admitted := make([]int64, keys)
	// All keys are asked in turns rather than one after the other: a counter
	// in use is not evicted.
	for round := 0; round < 30 || table.Stats().Forgotten == 0 && round < 3000; round++ { // on one processor the junk comes late
		for k := range admitted {
			admitted[k] += admit(table, fmt.Sprint("user", k), rule, 2, 3)
		}
	}
	done.Store(true)
	junk.Wait()
	s := table.Stats()
	for k, n := range admitted {
		if n != 10 {
			t.Errorf("user%d: admitted %d of 10", k, n)
		}
	}
	if s.Forgotten == 0 {
		t.Errorf("nothing was forgotten: %+v", s)
	}
	check(t, table)
}

// Promise 2: what was not reported is dropped only if there is no room, and then it is counted.
//
// Fault 37: units that are not reported are never lost without being counted.
func TestUnreportedUnitsAreCounted(t *testing.T) {
	const keys = 3000
	rule := windowRule(t, 1_000_000, time.Hour, 10)
	link := counter.NewLink(pace(time.Second), 4, shardOne)
	table := newTable(t, Options{MaxKeys: 64, slack: 256 * 8, Link: link})
	for i, k := range names("user", keys) {
		table.Allow(k, rule, 3, int64(table.clock.Now()))
		if i%100 == 0 {
			settle(t, table)
		}
	}
	settle(t, table)
	unsynced := int64(0)
	table.Range(func(c *counter.Counter) bool {
		unsynced += c.Unsynced()
		return true
	})
	s := table.Stats()
	if lost := link.Unreported.Load(); lost == 0 || unsynced+lost != 3*keys || lost != 3*s.Forgotten || s.Expired != 0 || s.Overflow != 0 {
		t.Errorf("%d units to report and %d lost of %d, %+v", unsynced, lost, 3*keys, s)
	}
	check(t, table)
}

// Promise 3: a flood frees nobody, and is not remembered.
//
// Fault 38: refused before, during and after the flood, in bounded memory.
func TestFloodDoesNotFreeAnExhaustedKey(t *testing.T) {
	const maxKeys = 500
	for _, used := range []string{"hot", "cold"} {
		t.Run(used, func(t *testing.T) {
			rule := slow(10)
			table := newTable(t, Options{MaxKeys: maxKeys})
			if got := admit(table, "attacker", rule, 1, 100); got != 10 {
				t.Fatalf("admitted %d", got)
			}
			settle(t, table)
			before := heap()
			for i := range 100 {
				flood(table, rule, fmt.Sprint("junk", i), maxKeys)
				if used == "hot" && admit(table, "attacker", rule, 1, 3) != 0 {
					t.Fatalf("free after %d junk keys", (i+1)*maxKeys)
				}
			}
			settle(t, table)
			if admit(table, "attacker", rule, 2, 100) != 0 {
				t.Fatal("free after the flood")
			}
			s := table.Stats()
			if bound := s.Room; s.Live > bound {
				t.Errorf("%d counters live, bound is %d", s.Live, bound)
			}
			if grown := heap() - before; grown > 8<<20 {
				t.Errorf("the heap has grown by %d bytes", grown)
			}
			if s.Forgotten == 0 {
				t.Errorf("%+v", s)
			}
			check(t, table)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Promise 4: whatever other keys have used, a new key has its whole limit, and no more.
//
// Fault 39: newcomers to a table that is full of used-up keys.
func TestNewKeysHaveTheirOwnLimit(t *testing.T) {
	one, rule := limit.Must(limit.TokenBucket("one", 1, 24*time.Hour, 1)), slow(10)
	table := newTable(t, Options{MaxKeys: 256, slack: 256 * 2})
	flood(table, one, "live", 256*3)
	settle(t, table)
	for i := range 256 * 8 {
		if got := admit(table, fmt.Sprint("newcomer", i), rule, 1, 20); got != 10 {
			t.Fatalf("newcomer %d: admitted %d of 10", i, got)
		}
	}
	for _, key := range names("live", 256*3) {
		if ok, _ := table.Allow(key, one, 1, int64(table.clock.Now())); ok {
			t.Errorf("%q is free", key)
		}
	}
	if s := table.Stats(); s.Overflow != 0 || s.Displaced != 0 || s.Recalled == 0 {
		t.Errorf("%+v", s)
	}
	check(t, table)
}

// Keys that a limit of 0 blocks make room for others: a new counter blocks them as well. One
// that was used before its limit became 0 stays.
//
// Fault 39: blocked keys leave newcomers their own counters.
func TestBlockedKeysMakeRoom(t *testing.T) {
	rule := slow(10)
	for _, blocked := range []*limit.Rule{limit.Must(limit.TokenBucket("no", 1, time.Hour, 0)), limit.Must(limit.SlidingWindow("no", 0, time.Hour))} {
		before := limit.Must(limit.TokenBucket("no", 1, time.Hour, 5))
		if arith.Of(blocked).Algorithm != arith.TokenBucket {
			before = limit.Must(limit.SlidingWindow("no", 5, time.Hour))
		}
		table := newTable(t, Options{MaxKeys: 256, slack: 256 * 2})
		admit(table, "used", before, 5, 1)
		admit(table, "used", blocked, 1, 1)
		flood(table, blocked, "live", 256*3)
		settle(t, table)
		for i := range 256 * 2 {
			if got := admit(table, fmt.Sprint("newcomer", i), rule, 1, 20); got != 10 {
				t.Fatalf("%v: a newcomer got %d units of 10", arith.Of(blocked).Algorithm, got)
			}
		}
		settle(t, table)
		if table.AllowBy(table.clock, "used", before, 1); table.Stats().Overflow != 0 {
			t.Errorf("%v: %+v", arith.Of(blocked).Algorithm, table.Stats())
		}
		if res := table.Peek(table.clock, "used", before); res.Remaining != 0 {
			t.Errorf("%v: what a key had used is forgotten: %+v", arith.Of(blocked).Algorithm, res)
		}
		check(t, table)
	}
}

// Promise 5: correctness does not depend on a hash.
//
// Fault 52: all keys have one hash and still counters of their own.
func TestCollidingKeysDoNotShare(t *testing.T) {
	table := newTable(t, Options{MaxKeys: 100, slack: 256 * 1000, hash: func(string, *limit.Rule) uint64 { return 42 }})
	rule, other := slow(10), limit.Must(limit.FixedWindow("other", 7, time.Hour))
	for i := range 50 {
		key := fmt.Sprint("k", i)
		if got := admit(table, key, rule, 4, 100); got != 10 {
			t.Errorf("%s: admitted %d of 10", key, got)
		}
		if got := admit(table, key, other, 4, 100); got != 7 {
			t.Errorf("%s: admitted %d of 7 by the other rule", key, got)
		}
		if i == 25 {
			settle(t, table)
		}
	}
	settle(t, table)
	if s := table.Stats(); s.Live != 100 {
		t.Errorf("%+v", s)
	}
	check(t, table)
}
