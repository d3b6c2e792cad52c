package local

import (
	"maps"
	"runtime"
	"sync"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Bounds of the side table.
const (
	// sideShards is over how many locks the side table is spread.
	sideShards = 256
	// minSideKeys is the least capacity of the side table; above, it is half
	// of MaxKeys. It bounds newcomers; evicted counters may go beyond it, see
	// putBackLocked.
	minSideKeys = 4096
	// overfill is how many times its capacity a side shard may hold when
	// counters come back from the cache that would refuse somebody.
	overfill = 2
	// roomSample is how many counters are looked at to make room for another.
	roomSample = 8
	// maxOverflow bounds the overflow counters of a shard: one per rule.
	maxOverflow = 64
	// sideKept is for how many counters a shard keeps its memory; above, it does
	// until there are sideShrink times fewer.
	sideKept, sideShrink = 16, 8
	// sideRetry is how many uses of a shard lie between attempts to move one
	// of its counters into the cache.
	sideRetry = 16
	// limboTries and limboSpins bound how long a lookup waits for evictions
	// that may be carrying its counter.
	limboTries = 8
	limboSpins = 1 << 18
)

// overflowKey is the key of overflow counters. They are in no table under it,
// so that it cannot clash with a user's key.
const overflowKey = "(overflow)"

// ident tells counters apart: full key and what the rule calls itself.
type ident struct {
	alg  limit.Algorithm
	name string
	key  string
}

func (c *Counter) ident() ident { return ident{alg: c.alg(), name: c.name(), key: c.Key()} }

// sideShard is one part of the side table.
type sideShard struct {
	mu       sync.Mutex         // protects all below, and that no counter of this shard dies or is revived
	counters map[ident]*Counter // alive, all of them
	overflow map[ident]*Counter // by rule; nil until needed
	most     int                // counters there were; a map never shrinks
	arrivals uint64             // counters put in, ever
	uses     uint32             // counters found here
	hold     int                // above 0: somebody walks the table, promote nothing
}

// shard returns the side shard of a cache key. The cache shards by the low
// bits; the high ones keep the two independent.
func (t *Table) shard(h uint64) *sideShard { return &t.side[h>>56%sideShards] }

// putLocked puts c into the side table.
func (t *Table) putLocked(sh *sideShard, c *Counter) {
	sh.counters[c.ident()] = c
	sh.most = max(sh.most, len(sh.counters))
	sh.arrivals++
	t.stats.side.Add(1)
}

// removeLocked takes c out of the side table.
func (t *Table) removeLocked(sh *sideShard, c *Counter) {
	delete(sh.counters, c.ident())
	t.stats.side.Add(-1)
	if sh.most > sideKept && len(sh.counters) < sh.most/sideShrink {
		smaller := make(map[ident]*Counter, len(sh.counters)) // a clone would be as large
		maps.Copy(smaller, sh.counters)
		sh.counters, sh.most = smaller, len(smaller)
	}
}

// retryLocked tells whether a counter that was found should be offered to the
// cache once more. The cache judges by frequency, so asking on every use
// would be a waste; asking now and then moves what stays popular.
func (sh *sideShard) retryLocked() bool {
	sh.uses++
	return sh.uses%sideRetry == 0
}

// forgetLocked marks c dead if it is worth no more than most, and reports
// whether it did. c must not be in the side table any more or be removed next.
func (t *Table) forgetLocked(c *Counter, most worth, now int64) bool {
	c.lock()
	defer c.mu.Unlock()
	w := c.worthLocked(now)
	if w > most {
		return false
	}
	c.dead = true
	t.recent.Load().drop(c)
	t.stats.live.Add(-1)
	if w >= worthPartial {
		t.stats.forgotten[w].Add(1)
	}
	return true
}

// promoteLocked takes c out of the side table if the cache holds it. The cache
// may take c out at this very moment; then onEvict will wait for sh and bring
// it back.
func (t *Table) promoteLocked(sh *sideShard, c *Counter) bool {
	if sh.hold > 0 {
		return false
	}
	v := t.view.Load()
	held := v.holds(c)
	runtime.KeepAlive(v)
	if held {
		t.removeLocked(sh, c)
	}
	return held
}

// makeRoomLocked frees a place in a full shard, or, unless drop is set, only
// tells whether it could. Of a sample of counters it takes one out that the
// cache holds, too; else it forgets the one worth least, if that is worth no
// more than most. A map is walked from a random place, which makes the first
// few a sample.
func (t *Table) makeRoomLocked(sh *sideShard, most worth, now int64, drop bool) bool {
	v := t.view.Load()
	defer runtime.KeepAlive(v)
	var victim *Counter
	left := roomSample
	for _, c := range sh.counters {
		if v.holds(c) {
			if sh.hold > 0 {
				continue // the walker relies on finding it here
			}
			if drop {
				t.removeLocked(sh, c)
			}
			return true
		}
		c.lock()
		w := c.worthLocked(now)
		c.mu.Unlock()
		if w < most || w == most && victim == nil {
			victim, most = c, w
		}
		if left--; left == 0 {
			break
		}
	}
	if victim == nil || !drop {
		return victim != nil
	}
	// Its worth may have risen since: it was not locked meanwhile.
	if !t.forgetLocked(victim, most, now) {
		return false
	}
	t.removeLocked(sh, victim)
	return true
}

// putBackLocked takes in a counter that the cache has dropped and the side
// table does not hold. One that would refuse somebody may overfill the shard:
// each was pushed out by another that has left, or is about to leave, the side
// table for the cache, so that the sum does not grow; only its distribution
// over the shards may. One with unreported units is taken in always. There are
// at most MaxKeys of both.
func (t *Table) putBackLocked(sh *sideShard, c *Counter, now int64) {
	c.lock()
	w, dead := c.worthLocked(now), c.dead
	c.mu.Unlock()
	if dead {
		return
	}
	stays := w == worthPinned
	if full := len(sh.counters) >= t.room; !stays && full {
		// The cache's verdict stands against one that nobody would miss, but
		// it may still take the place of what is worth less.
		stays = w > worthIdle && t.makeRoomLocked(sh, w-1, now, true) ||
			w == worthDenying && len(sh.counters) < overfill*t.room
	} else if !stays {
		stays = w > worthIdle
	}
	// A check that found c before the eviction may have used it since, so that
	// forgetting looks at its worth again, and keeps what has risen.
	if !stays && t.forgetLocked(c, w, now) {
		return
	}
	t.putLocked(sh, c)
	t.stats.putBack.Add(1)
}

// overflowLocked returns the counter that a newcomer shares with other
// newcomers of its rule in this shard, when there is no room for its own. It
// has no link: its units are nobody's in particular. With more than
// [maxOverflow] rules overflowing in one shard, those that find no idle place
// are refused by a counter that is always full: the safe side.
func (t *Table) overflowLocked(sh *sideShard, rule *limit.Rule, now int64) *Counter {
	id := ident{alg: rule.Algorithm(), name: rule.Name()}
	c := sh.overflow[id]
	if c == nil {
		c = newCounter(overflowKey, rule, 0, nil, now)
		if len(sh.overflow) >= maxOverflow && !sh.dropOverflowLocked(now) {
			c.setMode(packMode(WeightClosed, false))
			return c
		}
		if sh.overflow == nil {
			sh.overflow = make(map[ident]*Counter)
		}
		sh.overflow[id] = c
	}
	if t.link != nil {
		c.lock()
		c.win() // unfolds it by the weight that it was folded by

		// The policy of an outage holds here as well.
		c.setMode(t.link.unsorted.mode.Load())
		c.mu.Unlock()
	}
	return c
}

// dropOverflowLocked gives up one overflow counter that is as if never used.
func (sh *sideShard) dropOverflowLocked(now int64) bool {
	for id, c := range sh.overflow {
		c.lock()
		w := c.worthLocked(now)
		c.mu.Unlock()
		if w == worthIdle {
			delete(sh.overflow, id)
			return true
		}
	}
	return false
}
