package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// aMemory is a memory of one shard with so many sets at most.
func aMemory(sets int) (*memory, *traces) { return newMemory(sets * setSize), &traces{most: sets} }

// traceOf returns what is remembered of a key that has used n units at now.
func traceOf(t testing.TB, rule *limit.Rule, n, now int64) algorithm.Trace {
	t.Helper()
	var w algorithm.Window
	r := arith.Of(rule)
	w.Begin(r, now, algorithm.Clock{Sure: true})
	w.Book(r, now, n, n, 1)
	return w.Trace(r, now, 1)
}

// checkMemory fails if the figures of a memory are not those of its places.
func checkMemory(t *testing.T, m *memory, ts *traces) {
	t.Helper()
	used, refs := 0, map[*sharedRule]int64{}
	for i := range ts.sets {
		for j := range setSize {
			if p := (place{&ts.sets[i], j}); p.get().id != 0 {
				used++
				refs[m.ruleOf(p.get())]++
				if at := ts.find(p.get().id); at != p {
					t.Errorf("place %d of set %d is not found", j, i)
				}
			}
		}
	}
	if used != ts.used || m.live.Load() != int64(used) {
		t.Errorf("%d places are taken; counted as %d and %d", used, ts.used, m.live.Load())
	}
	for _, r := range m.rules {
		if r.refs.Load() != refs[r] {
			t.Errorf("%v has %d places, counted as %d", r.rule, refs[r], r.refs.Load())
		}
	}
}

// As long as no more than 98 % of the places of a shard are taken, no key is displaced.
//
// Fault 106: how many keys are remembered.
func TestHowManyKeysAreRemembered(t *testing.T) {
	const sets, shards = 1024, 8 // as many sets as a shard has by default
	const keys = sets * setSize * 98 / 100
	rule, now := windowRule(t, 10, time.Hour, 10), start.UnixNano()
	rng := rand.New(rand.NewPCG(1, 2))
	for range shards {
		m, ts := newMemory(0), &traces{most: sets}
		for range keys {
			m.remember(ts, rng.Uint64(), rule, traceOf(t, rule, 10, now), now)
		}
		if len(ts.sets) != sets {
			t.Errorf("%d sets", len(ts.sets))
		}
		if lost := m.displaced.Load(); lost > 0 {
			t.Errorf("%d of %d keys were displaced", lost, keys)
		}
		checkMemory(t, m, ts)
	}
}

// Of the keys that compete for a place the one that has used the smallest share of its limit goes, not the
// one whose units end first. Of equal ones any may go.
//
// Fault 106: more keys than places.
func TestWhoIsDisplaced(t *testing.T) {
	now := start.UnixNano()
	short, long := windowRule(t, 10, time.Minute, 10), limit.Must(limit.SlidingWindowBuckets("long", 1000, 24*time.Hour, 10))
	m, ts := aMemory(1)
	for i := range uint64(setSize) {
		rule, n := long, int64(1000)
		if i%2 == 0 {
			rule, n = short, 10
		}
		if i == 5 {
			rule, n = long, 300
		}
		m.remember(ts, i<<lowBits|1<<60, rule, traceOf(t, rule, n, now), now)
	}
	m.remember(ts, 100<<lowBits|1<<60, short, traceOf(t, short, 5, now), now)
	if m.displaced.Load() != 1 || ts.has(5<<lowBits|1<<60) || !ts.has(100<<lowBits|1<<60) {
		t.Error("the key that has used 300 of 1,000 has stayed, or one that has used 5 of 10 has no place")
	}
	m.remember(ts, 101<<lowBits|1<<60, short, traceOf(t, short, 2, now), now)
	if ts.has(101<<lowBits|1<<60) || m.displaced.Load() != 2 {
		t.Error("a key that has used less than all others has displaced one of them")
	}
	checkMemory(t, m, ts)
	gone := map[bool]int{}
	for run := range 2000 {
		m, ts := aMemory(1)
		for i := range uint64(setSize + 1) {
			m.remember(ts, i<<lowBits|1<<60, short, traceOf(t, short, 10, now), now)
		}
		gone[!ts.has(setSize<<lowBits|1<<60)]++
		if run == 0 {
			checkMemory(t, m, ts)
		}
	}
	if n := gone[true]; n < 60 || n > 180 { // 2000/17 = 118 on average, deviation 10.5: five of them
		t.Errorf("of 17 equal keys the last one is displaced %d times of 2,000", n)
	}
}

// What counts no more takes no place: it is found by the next key that needs the place, when the sets
// grow, and by the sweep.
func TestWhatCountsNoMoreIsForgotten(t *testing.T) {
	rule, now := windowRule(t, 10, time.Minute, 10), start.UnixNano()
	later := now + int64(2*time.Minute)
	for _, by := range []string{"the next key", "growth", "the sweep", "recall"} {
		m, ts := aMemory(map[bool]int{true: 1, false: 1024}[by == "the next key"])
		for i := range uint64(setSize) {
			m.remember(ts, i<<lowBits|i<<40|1<<63, rule, traceOf(t, rule, 10, now), now)
		}
		want := 0
		switch by {
		case "the next key":
			m.remember(ts, 99<<lowBits|1<<63, rule, traceOf(t, rule, 1, later), later)
			want = setSize
		case "growth":
			m.grow(ts, later)
		case "the sweep":
			for m.sweep(ts, 1, later) {
			}
			if ts.sets != nil {
				t.Error("empty sets are kept")
			}
		case "recall":
			for i := range uint64(setSize) {
				if rule, _ := m.recall(ts, i<<lowBits|i<<40|1<<63, later); rule != nil {
					t.Error("an ended trace was recalled")
				}
			}
		}
		if ts.used != want || m.displaced.Load() != 0 {
			t.Errorf("%s: %d places are taken, %d keys displaced", by, ts.used, m.displaced.Load())
		}
		checkMemory(t, m, ts)
	}
}

// Traces are read by the rule that they were written by, of which a memory knows 4,095 at a time. Keys of
// further rules are not remembered, and counted, until nothing refers to one of the others.
//
// Fault 106: more rules than numbers.
func TestRulesOfTracesAreBounded(t *testing.T) {
	m, ts := aMemory(4096)
	now := start.UnixNano()
	rule := func(i int) *limit.Rule {
		return limit.Must(limit.SlidingWindowBuckets(fmt.Sprint("rule ", i), 10, time.Minute, 10))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range ruleMask + 100 {
		for range 2 { // the second is equal, and another pointer
			m.remember(ts, rng.Uint64(), rule(i), traceOf(t, rule(i), 3, now), now)
		}
	}
	if len(m.rules) != ruleMask || m.displaced.Load() != 200 || ts.used != 2*ruleMask {
		t.Errorf("%d rules, %d keys, %d displaced", len(m.rules), ts.used, m.displaced.Load())
	}
	checkMemory(t, m, ts)
	later := now + int64(2*time.Minute)
	for m.sweep(ts, 16, later) {
	}
	print := rng.Uint64()
	other := limit.Must(limit.FixedWindow("another", 7, time.Hour))
	m.remember(ts, print, other, traceOf(t, other, 7, later), later)
	if _, was, trace := m.look(ts, print, later); was != other || trace.ShareLeft(was, later) != 256 {
		t.Errorf("recalled %v", was)
	}
	if len(m.rules) != ruleMask || len(m.index) != ruleMask {
		t.Errorf("%d rules, %d in the index", len(m.rules), len(m.index))
	}
	checkMemory(t, m, ts)
}

// Whatever happens to keys, in any order and with any clock, a table with little room decides them as one
// with room for all.
//
// Fault 106: a model of keys that come and go.
func TestKeysThatComeAndGo(t *testing.T) {
	rules := []*limit.Rule{windowRule(t, 10, time.Hour, 10), limit.Must(limit.FixedWindow("fixed", 8, time.Hour)),
		limit.Must(limit.TokenBucket("bucket", 10, time.Hour, 10)), limit.Must(limit.FixedWindow("few", 3, time.Minute))}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		small := newUnkept(t, Options{MaxKeys: 1, MaxRemembered: 1 << 14, slack: 40})
		large := newUnkept(t, Options{MaxKeys: 1 << 12, slack: 1 << 12})
		now := start.UnixNano()
		for step := range 20_000 {
			key, rule, n := fmt.Sprint("key ", rng.IntN(300)), rules[rng.IntN(len(rules))], rng.Int64N(3)
			switch rng.IntN(20) {
			case 0:
				if a, b := small.Refund(key, rule, n, now), large.Refund(key, rule, n, now); arith.Of(rule).Kept == 0 && a != b {
					t.Fatalf("seed %d, step %d: %v: %d and %d of %d came back", seed, step, rule, a, b, n)
				}
			case 1:
				small.Set(key, rule, n, now)
				large.Set(key, rule, n, now)
			case 2:
				small.Charge(key, rule, n, now)
				large.Charge(key, rule, n, now)
			case 3:
				now += rng.Int64N(int64(time.Minute))
			default:
				// A sliding window may be stricter, because times within a bucket are not remembered. So it
				// takes only what both admit.
				is, was := small.Peek(at(now), key, rule), large.Peek(at(now), key, rule)
				if is.Remaining > was.Remaining || arith.Of(rule).Kept == 0 && is.Remaining != was.Remaining {
					t.Fatalf("seed %d, step %d: %v, %q: %+v, want %+v", seed, step, rule, key, is, was)
				}
				if n <= is.Remaining {
					small.Allow(key, rule, n, now)
					large.Allow(key, rule, n, now)
				}
			}
		}
		if s := small.Stats(); s.Recalled == 0 || s.Displaced > 0 {
			t.Errorf("%+v", s)
		}
		check(t, small)
	}
}

// The event that keys leave memory comes when something is lost or may soon be, and once in five minutes.
func TestCrowdedIsRare(t *testing.T) {
	var c crowd
	minute := int64(time.Minute)
	for i, step := range []struct {
		s    Stats
		at   int64
		want bool
	}{
		{Stats{Remembered: 10, RememberedRoom: 100, Forgotten: 1000}, 0, false},
		{Stats{Remembered: 50, RememberedRoom: 100}, minute, true},
		{Stats{Remembered: 90, RememberedRoom: 100}, 2 * minute, false},
		{Stats{Remembered: 1, RememberedRoom: 100, Displaced: 1}, 7 * minute, true},
		{Stats{Remembered: 1, RememberedRoom: 100, Displaced: 1}, 20 * minute, false},
		{Stats{Remembered: 1, RememberedRoom: 100, Displaced: 1, Unreported: 1}, 20 * minute, true},
		{Stats{Remembered: 1, RememberedRoom: 100, Displaced: 9, Unreported: 9}, 24 * minute, false},
	} {
		if got := c.news(step.s, step.at); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
}
