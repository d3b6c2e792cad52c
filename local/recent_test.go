package local

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/limit"
)

// What a check reads and writes is laid out by cache lines, and the memory of a
// key is one of the promises. Whoever adds a field must find room for it.
func TestCounterLayout(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("pointers are not of 8 bytes")
	}
	const line = 64
	var c Counter
	var p piece
	for what, at := range map[string]struct{ is, want uintptr }{
		"the size of a counter":                     {unsafe.Sizeof(c), 3 * line},
		"the beginning of what a check decides on":  {unsafe.Offsetof(c.mu), line},
		"the end of it":                             {unsafe.Offsetof(c.funnel) + unsafe.Offsetof(c.funnel.known), 2 * line},
		"the size of a bound key":                   {unsafe.Sizeof(Key{}), line / 2},
		"the size of a slot":                        {unsafe.Sizeof(slot{}), line / 2},
		"the size of what it has besides":           {unsafe.Sizeof(tenancy{}), line},
		"the size of one with a longer key":         {unsafe.Sizeof(namedCounter{}), 4 * line},
		"the size of a window":                      {unsafe.Sizeof(p), 416}, // a class of the allocator
		"the size of a line of the recent counters": {unsafe.Sizeof(recentLine{}), line},
	} {
		if at.is != at.want {
			t.Errorf("%s: %d, want %d", what, at.is, at.want)
		}
	}
}

// stray returns a counter that no table holds.
func stray(h uint64) *Counter { return newCounter(fmt.Sprint(h), slowRule, h, nil, 0) }

var slowRule = limit.Must(limit.Funnel("stray", 10, 1, time.Hour))

func TestRecents(t *testing.T) {
	r := newRecents(2)
	if c := r.get(0); c != nil {
		t.Fatalf("an empty one has %v", c)
	}
	a, twin := stray(0), stray(0)
	r.put(a)
	r.put(a)
	if r.get(0) != a {
		t.Error("not found")
	}
	r.put(twin)
	if r.get(0) != twin {
		t.Error("a counter of the same hash does not take the place of the other")
	}
	r.drop(a)
	if r.get(0) != twin {
		t.Error("dropped for another")
	}
	r.drop(twin)
	if r.get(0) != nil {
		t.Error("still there")
	}
	// Seven that share a line, and tags; an eighth finds a place all the same.
	for i := range uint64(recentWays + 1) {
		c := stray(1<<60 | i<<20)
		r.put(c)
		if r.get(c.hash) != c {
			t.Errorf("counter %d is not found", i)
		}
	}
	kept := 0
	for i := range uint64(recentWays + 1) {
		if c := r.get(1<<60 | i<<20); c != nil {
			kept++
		}
	}
	if kept != recentWays {
		t.Errorf("%d of %d places are used", kept, recentWays)
	}
}

// Whatever is going on, one finds the counter of the hash that was asked for, or
// none.
func TestRecentsConcurrently(t *testing.T) {
	r := newRecents(4)
	counters := make([]*Counter, 64)
	for i := range counters {
		counters[i] = stray(uint64(i%48) * 0x0101_0101_0101_0101) // some in twos
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 20_000 {
				c := counters[rng.IntN(len(counters))]
				switch rng.IntN(8) {
				case 0:
					r.drop(c)
				case 1, 2:
					r.put(c)
				default:
					if got := r.get(c.hash); got != nil && got.hash != c.hash {
						t.Errorf("asked for %x, got %x", c.hash, got.hash)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// recalled returns how many of the keys are among the recent ones.
func recalled(t *Table, rule *limit.Rule, keys []string) (n int) {
	for _, k := range keys {
		if t.Seek(k, rule).c != nil {
			n++
		}
	}
	return n
}

// The recent ones grow with the table, and keep what they know.
func TestRecentsGrow(t *testing.T) {
	rule := slow(10)
	table := newTable(t, TableOptions{MaxKeys: 1 << 16})
	keys := names("k", 20_000)
	for _, k := range keys {
		admit(table, k, rule, 1, 1)
	}
	until(t, "room for them", func() bool { return !table.recent.Load().crowded(table.stats.live.Load()) })
	for _, k := range keys {
		admit(table, k, rule, 1, 1)
	}
	// Places may be given to others, see recentLoad.
	if n := recalled(table, rule, keys); n < len(keys)*97/100 {
		t.Errorf("%d of %d keys are recent", n, len(keys))
	}
	if lines := len(table.recent.Load().lines); lines*recentLoad < len(keys) || lines*recentLoad > 2*len(keys) {
		t.Errorf("%d lines for %d keys", lines, len(keys))
	}
	for _, k := range keys[:100] {
		if got := admit(table, k, rule, 1, 20); got != 8 {
			t.Fatalf("%q: admitted %d more, want 8", k, got)
		}
	}
	check(t, table)
}

// A counter that was forgotten is not kept in memory by the recent ones.
func TestRecentsLetTheDeadGo(t *testing.T) {
	rule := slow(10)
	table := newTable(t, TableOptions{MaxKeys: 64, sideKeys: 256})
	flood(table, rule, "junk", 5000)
	settle(t, table)
	r := table.recent.Load()
	for i := range r.lines {
		for j := range r.lines[i].counter {
			if c := r.lines[i].counter[j].Load(); c != nil && c.isDead() {
				t.Fatalf("%q is dead", c.Key())
			}
		}
	}
	check(t, table)
}

// A shard of the side table that many keys have passed through does not keep the
// memory of all of them, nor lose one when it lets go of it.
func TestSideTableShrinks(t *testing.T) {
	table := newTable(t, TableOptions{MaxKeys: 16})
	now := int64(table.clock.Now())
	sh := &table.side[0]
	sh.mu.Lock()
	var all []*Counter
	for i := range 40 * sideKept {
		c := newCounter(fmt.Sprint(i), slowRule, 0, nil, now)
		table.putLocked(sh, c)
		all = append(all, c)
	}
	grown := sh.most
	for _, c := range all[3:] {
		table.removeLocked(sh, c)
	}
	if grown != len(all) || sh.most > sideKept {
		t.Errorf("a map for %d counters has become one for %d, of which 3 are left", grown, sh.most)
	}
	for _, c := range all[:3] {
		if sh.counters[c.ident()] != c {
			t.Errorf("%q is lost", c.Key())
		}
		table.removeLocked(sh, c)
	}
	sh.mu.Unlock()
	if n := table.stats.side.Load(); n != 0 {
		t.Errorf("%d counters aside", n)
	}
}
