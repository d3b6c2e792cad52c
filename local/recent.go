package local

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// recentWays is how many counters one cache line of recents refers to: what
	// is left of it beside their tags.
	recentWays = 7
	// recentLoad is how many counters there may be per cache line before there
	// are more lines. Of 7 places 3 are taken then, and 0.6 % of keys find none.
	recentLoad = 3
	// recentFirst and recentMost bound the lines: 64 bytes each.
	recentFirst, recentMost = 1 << 6, 1 << 18
	// epochParts is how many epochs it takes until as many keys have come as the
	// cache holds. In each the cache hears once of every key that is used, and not
	// more often. It knows who is in use by some dozens of uses then, until it
	// halves what it knows, and who came for a moment by two or three; it needs the
	// distance, because it does not hear of all that it is told.
	epochParts = 32
	// epochLeast is how many keys make an epoch at the least.
	epochLeast = 16
)

// recents refers to counters that were used lately. It is asked before the cache,
// which takes as long as two or three checks, and may forget or keep anybody: that
// a counter is in it says nothing. Whoever finds one here compares its key and,
// under its lock, looks whether it is alive, as with one from the cache.
//
// Its size follows the number of counters, so that it stays in the processor's
// own cache as long as it can: with many keys it is memory that a check waits for.
type recents struct {
	lines []recentLine
	mask  uint64
}

// recentLine is one cache line. Its parts are written one after the other, so
// that a tag may stand beside the counter of another for a moment, or for good.
type recentLine struct {
	tags    atomic.Uint64 // a byte for each place, see tagOf; 0: free
	counter [recentWays]atomic.Pointer[Counter]
}

const (
	everyByte = 0x01_01_01_01_01_01_01_01
	topBits   = 0x80_80_80_80_80_80_80_80
)

func newRecents(lines int) *recents {
	return &recents{lines: make([]recentLine, lines), mask: uint64(lines - 1)}
}

// line returns where counters of a hash are. The cache shards by the low bits of
// it, the side table and the tags use the highest.
func (r *recents) line(h uint64) *recentLine { return &r.lines[h>>8&r.mask] }

func tagOf(h uint64) uint64 { return h>>57 + 1 }

// get returns the counter with this hash, or nil.
func (r *recents) get(h uint64) *Counter {
	l := r.line(h)
	differ := l.tags.Load() ^ tagOf(h)*everyByte
	// The lowest of these is a byte without a difference; others may not be.
	for same := (differ - everyByte) &^ differ & topBits; same != 0; same &= same - 1 {
		i := bits.TrailingZeros64(same) / 8
		if i == recentWays {
			break
		}
		if c := l.counter[i].Load(); c != nil && c.hash == h {
			return c
		}
	}
	return nil
}

// put notes that c was used.
func (r *recents) put(c *Counter) {
	l := r.line(c.hash)
	at := -1
	for i := range l.counter {
		other := l.counter[i].Load()
		if other != nil && other.hash == c.hash {
			at = i // of the same key, or it gives way
			break
		}
		if at < 0 && other == nil {
			at = i
		}
	}
	if at < 0 {
		at = rand.IntN(recentWays)
	}
	l.counter[at].Store(c)
	for shift := at * 8; ; {
		was := l.tags.Load()
		is := was&^(0xff<<shift) | tagOf(c.hash)<<shift
		if was == is || l.tags.CompareAndSwap(was, is) {
			return
		}
	}
}

// drop forgets c, so that a dead counter does not stay in memory for this.
func (r *recents) drop(c *Counter) {
	l := r.line(c.hash)
	for i := range l.counter {
		if l.counter[i].Load() == c {
			l.counter[i].CompareAndSwap(c, nil)
		}
	}
}

// crowded reports whether there are more counters than r should refer to.
func (r *recents) crowded(live int64) bool {
	return live > int64(len(r.lines))*recentLoad && len(r.lines) < recentMost
}

// growRecents makes room for as many counters as there are. It is for the table's
// own goroutine: what is noted meanwhile may be lost, and a check would have to
// wait.
func (t *Table) growRecents() {
	was := t.recent.Load()
	live, lines := t.stats.live.Load(), len(was.lines)
	for lines < recentMost && live > int64(lines)*recentLoad {
		lines *= 2
	}
	if lines == len(was.lines) {
		return
	}
	is := newRecents(lines)
	for i := range was.lines {
		for j := range was.lines[i].counter {
			if c := was.lines[i].counter[j].Load(); c != nil {
				is.put(c)
			}
		}
	}
	t.recent.Store(is)
	for i := range is.lines { // some have died since they were copied
		for j := range is.lines[i].counter {
			if c := is.lines[i].counter[j].Load(); c != nil && c.isDead() {
				is.drop(c)
			}
		}
	}
}

// recall returns the counter of a key if it is a recent one or the cache has it,
// nil if not. It may be dead.
func (t *Table) recall(v *view, h uint64, key string, rule *limit.Rule) *Counter {
	if c := t.recent.Load().get(h); c != nil && c.matches(key, rule) {
		if c.used(uint8(t.epoch.Load())) == remind {
			t.remind(c)
		}
		return c
	}
	return t.fromCache(v, h, key, rule)
}

// used notes that c is, in an epoch of the table.
func (c *Counter) used(epoch uint8) manner {
	c.lock()
	defer c.mu.Unlock()
	return c.usedLocked(epoch)
}

// fromCache returns the counter of a key if the cache has it, and notes it.
func (t *Table) fromCache(v *view, h uint64, key string, rule *limit.Rule) *Counter {
	c := v.get(h)
	if c == nil || !c.matches(key, rule) {
		return nil
	}
	t.recent.Load().put(c)
	return c
}

// comes counts a key that is new, and begins an epoch with every so many.
func (t *Table) comes() {
	if t.stats.created.Add(1)%t.epochKeys == 0 {
		t.epoch.Add(1)
		t.lodge.season.turn()
	}
}

// remind tells the cache that c is in use, and offers it again if it does not
// hold it: the cache judges by how often it is asked for a key. As long as nobody
// new comes, it has nothing to judge, and need not be told.
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
