package local

import (
	"math/bits"
	"time"

	"github.com/dgraph-io/ristretto/v2"
)

// This file is all that writes to the cache, and what the cache calls back.

const (
	// freshBacklog bounds how many offered counters may wait to be looked
	// after. Those that find it full wait for the sweep.
	freshBacklog = 4096
	// promoteBatch bounds how many of them are looked after at a time.
	promoteBatch = 1024
	// sweepEvery paces the cleaning of the side table.
	sweepEvery = time.Second
	// sweepKeys and sweepHold bound how many counters one cleaning looks at,
	// and how many of one shard while its lock is held.
	sweepKeys = 1 << 14
	sweepHold = 256
	// sketchSmall and sketchLarge are how many keys' frequencies are tracked
	// per key kept, up to and above sketchKeys: some 45 bytes for each, or 6 to 12.
	sketchSmall, sketchLarge = 10, 2
	sketchKeys               = 1 << 17
)

func (t *Table) newCache(maxKeys int64) (*ristretto.Cache[uint64, *Counter], error) {
	track := sketchSmall * maxKeys
	if maxKeys > sketchKeys {
		// The sketch rounds up to a power of two. Here it had better be down.
		track = max(int64(1)<<(bits.Len64(uint64(sketchLarge*maxKeys))-1), sketchSmall*sketchKeys)
	}
	return ristretto.NewCache(&ristretto.Config[uint64, *Counter]{
		NumCounters:        track,
		MaxCost:            maxKeys,
		BufferItems:        64,
		IgnoreInternalCost: true,
		KeyToHash:          func(h uint64) (uint64, uint64) { return h, 0 },
		Cost:               t.beforeSet,
		OnEvict:            t.onEvict,
		OnReject:           func(*ristretto.Item[*Counter]) { t.evictionOver() },
		ShouldUpdate:       t.shouldReplace,
	})
}

// beforeSet is asked by the cache what a counter costs: 1. What matters is
// when: on the cache's goroutine, for every new entry, just before it is
// decided upon. If the cache is full, that ends in exactly one eviction or one
// rejection (all costs are 1), and both are told. In between, a counter may be
// in the cache no more and in the side table not yet; evicting says so.
func (t *Table) beforeSet(*Counter) int64 {
	t.evictionOver() // a replacement whose slot has vanished leaves it open
	if t.cache.RemainingCost() < 1 {
		t.evicting.Add(1)
	}
	return 1
}

func (t *Table) evictionOver() {
	if t.evicting.Load()%2 == 1 {
		t.evicting.Add(1)
	}
}

// onEvict is told, on the cache's goroutine, what the cache has taken out.
func (t *Table) onEvict(item *ristretto.Item[*Counter]) {
	if t.closing.Load() {
		return // called by Close, under a lock of the cache
	}
	if c := item.Value; c != nil {
		t.stats.evictions.Add(1)
		t.takeBack(c, int64(t.clock.Now()))
	}
	t.evictionOver()
}

// takeBack decides what becomes of a counter that the cache has dropped.
func (t *Table) takeBack(c *Counter, now int64) {
	sh := t.shard(c.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch twin := sh.counters[c.ident()]; twin {
	case c: // not promoted yet
	case nil:
		t.putBackLocked(sh, c, now)
	default:
		t.mergeLocked(twin, c, now)
	}
}

// mergeLocked lets twin take over what c has counted. They have no order among
// themselves; whoever locks such counters does so under crowd.
func (t *Table) mergeLocked(twin, c *Counter, now int64) {
	t.crowd.Lock()
	defer t.crowd.Unlock()
	c.lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	twin.lock()
	defer twin.mu.Unlock()
	twin.absorbLocked(c, now)
	t.recent.Load().drop(c)
	t.stats.live.Add(-1)
	t.stats.merged.Add(1)
}

// shouldReplace is asked by the cache, under a lock of its own, whether cur may
// take over the slot of prev. In general not: prev may be alive and the counter
// of another key with the same hash, and would be lost without a trace.
func (t *Table) shouldReplace(cur, prev *Counter) bool {
	return cur == t.replacing.Load() && prev.isDead()
}

func (c *Counter) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// offer asks the cache to hold c, unless its slot is taken. Nothing is lost if
// it does not: c stays in the side table.
func (t *Table) offer(c *Counter) {
	// Writing to a ristretto cache that is being closed panics. Close does not
	// wait for us, nor we for it.
	if !t.writeMu.TryRLock() {
		return
	}
	defer t.writeMu.RUnlock()
	if t.view.Load() == nil {
		return
	}
	if _, taken := t.cache.GetTTL(c.hash); !taken && !t.cache.Set(c.hash, c, 0) {
		t.stats.dropped.Add(1)
	}
	select {
	case t.fresh <- c:
	default: // the sweep will find it
	}
}

// keep moves counters from the side table to the cache and forgets idle ones,
// until the table is closed. Nothing waits for it.
func (t *Table) keep() {
	defer close(t.kept)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for next := 0; ; {
		select {
		case c := <-t.fresh:
			t.promote(c)
		case <-t.crowded:
			t.growRecents()
			t.lodge.grow(t.stats.live.Load())
		case <-tick.C:
			next = t.sweep(next, int64(t.clock.Now()))
		case <-t.stop:
			return
		}
	}
}

// promote removes from the side table what the cache has taken in of the
// counters offered lately, first among them.
func (t *Table) promote(first *Counter) {
	batch := append(make([]*Counter, 0, 16), first)
	for len(batch) < promoteBatch {
		select {
		case c := <-t.fresh:
			batch = append(batch, c)
			continue
		default:
		}
		break
	}
	// What was offered before is decided upon after this.
	t.cache.Wait()
	for _, c := range batch {
		sh := t.shard(c.hash)
		sh.mu.Lock()
		waiting := sh.counters[c.ident()] == c && !t.promoteLocked(sh, c)
		sh.mu.Unlock()
		if waiting {
			t.replaceDead(c)
		}
	}
}

// replaceDead gives c the slot that a dead counter of the same key occupies.
// There is one if the key was forgotten while the cache had still to take it
// in, and created anew before it did.
//
// It costs 1 outright, so that beforeSet is not asked: replacing evicts
// nobody. Only if the dead counter leaves the slot at this very moment is c a
// new entry and may push another counter out unannounced, whose key, if asked
// for in the microsecond until it is back, gets a second counter for as long;
// onEvict merges them.
func (t *Table) replaceDead(c *Counter) {
	old := t.view.Load().get(c.hash)
	if old == nil || old == c || old.ident() != c.ident() || !old.isDead() {
		return
	}
	t.replacing.Store(c)
	t.cache.Set(c.hash, c, 1)
	t.replacing.Store(nil)
	t.stats.replaced.Add(1)
}

// sweep cleans a bounded part of the side table, beginning with shard next,
// and returns where to go on.
func (t *Table) sweep(next int, now int64) int {
	budget := sweepKeys
	for range sideShards {
		if budget <= 0 || t.stats.side.Load() == 0 {
			break
		}
		budget -= t.sweepShard(&t.side[next], now)
		next = (next + 1) % sideShards
	}
	return next
}

// sweepShard removes counters that the cache holds as well or that are as if
// never used. Of a shard too large to be locked for so long it cleans a part;
// a map is walked from a random place, so that all get their turn.
func (t *Table) sweepShard(sh *sideShard, now int64) (looked int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, c := range sh.counters {
		if !t.promoteLocked(sh, c) && t.forgetLocked(c, worthIdle, now) {
			t.removeLocked(sh, c)
			t.stats.expired.Add(1)
		}
		if looked++; looked == sweepHold {
			break
		}
	}
	return looked
}
