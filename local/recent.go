package local

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// recentWays is how many counters one cache line of recents refers to.
	recentWays = 4
	// recentMost bounds recents: 16 bytes each.
	recentMost = 1 << 20
	// remindEvery is how many checks of a counter are one for the cache: it is
	// asked for a key as often as others are, only less often for all of them.
	remindEvery = 64
)

// recents refers to counters that were used lately, as many as the cache may
// hold keys. It is asked before the cache, which is slower by the time of two or
// three checks, and may forget or keep anybody: that a counter is in it says
// nothing. Whoever finds one here compares its key and, under its lock, looks
// whether it is alive, as with one from the cache.
//
// Reading is two cache lines, and no more than atomic loads.
type recents struct {
	sets []recentSet
	mask uint64
}

// recentSet is one cache line. Its parts are written one after the other, so that
// a hash may stand beside the counter of another for a moment.
type recentSet struct {
	hash    [recentWays]atomic.Uint64
	counter [recentWays]atomic.Pointer[Counter]
}

func newRecents(maxKeys int) recents {
	slots := min(max(maxKeys, 16*recentWays), recentMost)
	sets := 1 << bits.Len(uint(slots/recentWays-1))
	return recents{sets: make([]recentSet, sets), mask: uint64(sets - 1)}
}

// set returns where counters of a hash are. The cache shards by the low bits of
// it, the side table by the highest.
func (r *recents) set(h uint64) *recentSet { return &r.sets[h>>8&r.mask] }

// get returns a counter that had this hash, or nil.
func (r *recents) get(h uint64) *Counter {
	s := r.set(h)
	for i := range s.hash {
		if s.hash[i].Load() == h {
			return s.counter[i].Load()
		}
	}
	return nil
}

// put notes that c was used.
func (r *recents) put(c *Counter) {
	s := r.set(c.hash)
	at := -1
	for i := range s.hash {
		if s.hash[i].Load() == c.hash { // another of this key, or of this hash
			at = i
			break
		}
		if at < 0 && s.counter[i].Load() == nil {
			at = i
		}
	}
	if at < 0 {
		at = rand.IntN(recentWays)
	}
	s.counter[at].Store(c)
	s.hash[at].Store(c.hash)
}

// drop forgets c, so that a dead counter does not stay in memory for this.
func (r *recents) drop(c *Counter) {
	s := r.set(c.hash)
	for i := range s.counter {
		s.counter[i].CompareAndSwap(c, nil)
	}
}

// recall returns the counter of a key if it is a recent one or the cache has it,
// nil if not. It may be dead.
func (t *Table) recall(v *view, h uint64, key string, rule *limit.Rule) *Counter {
	if c := t.recent.get(h); c != nil && c.matches(key, rule) {
		if rand.Uint32()%remindEvery == 0 {
			t.remind(c)
		}
		return c
	}
	return t.fromCache(v, h, key, rule)
}

// fromCache returns the counter of a key if the cache has it, and notes it.
func (t *Table) fromCache(v *view, h uint64, key string, rule *limit.Rule) *Counter {
	c := v.get(h)
	if c == nil || !c.matches(key, rule) {
		return nil
	}
	t.recent.put(c)
	return c
}

// remind tells the cache that c is in use, and offers it again if it does not
// hold it: the cache judges by how often it is asked for a key.
func (t *Table) remind(c *Counter) {
	v := t.view.Load()
	held := v.get(c.hash) == c
	runtime.KeepAlive(v)
	if held || v == nil {
		return
	}
	sh := t.shard(c.hash)
	sh.mu.Lock()
	aside := sh.counters[c.ident()] == c
	sh.mu.Unlock()
	if aside {
		t.offer(c)
	}
}
