package table

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// minSlack is the least number of counters above MaxKeys that a table has room for. Usually it
	// is a quarter of MaxKeys. The room is for new keys that the policy has not judged yet, and for
	// counters that the policy would drop but that must stay.
	minSlack = 4096
	// evictLooks is among how many counters the victim is chosen when a new key needs room.
	evictLooks = 16
	// evictMost bounds how many more are looked at if all of these must stay: about as many as a
	// shard has.
	evictMost = shardKeys
	// scatter spreads consecutive looks of eviction over the rows. If eviction emptied row after
	// row, the rows that it has not reached for longest would be full, and a fifth of the keys of a
	// full table would find no entry. scatter is odd and the number of entries a power of two, so
	// every entry is reached.
	scatter = 40503*rowSize + 1
	// maxOverflow bounds the overflow counters of a shard. There is one for each rule.
	maxOverflow = 64
)

// overflowKey is the key of overflow counters. They are not in the index, so it cannot clash with a
// key of the user.
const overflowKey = "(overflow)"

// makeRoomLocked drops a counter that would not refuse one unit, and reports whether there was one.
// Of evictLooks counters it prefers one that was not used lately and that the policy does not hold,
// then the first of the others that may go. If there is none, it takes the next in the shard that
// may go. If all counters of the shard were looked at and must stay, it looks at only evictLooks
// for each further key, so that a flood of new keys costs little.
func (t *Table) makeRoomLocked(sh *shard, now int64) bool {
	var busy [evictLooks]*counter.Counter
	n := 0
	for range min(evictLooks, sh.live) {
		switch c := sh.nextLocked(); {
		case c.IsBusy():
			busy[n] = c
			n++
		case t.forgetLocked(sh, c, counter.Partial, now):
			return true
		}
	}
	for _, c := range busy[:n] {
		if t.forgetLocked(sh, c, counter.Partial, now) {
			return true
		}
	}
	sh.stuck += evictLooks
	for range min(evictMost, sh.live-sh.stuck) {
		if sh.stuck++; t.forgetLocked(sh, sh.nextLocked(), counter.Partial, now) {
			return true
		}
	}
	return false
}

// mayMakeRoomLocked reports whether makeRoomLocked would find a counter to drop.
func (sh *shard) mayMakeRoomLocked(now int64) bool {
	for range min(sh.live, evictLooks+min(evictMost, max(0, sh.live-sh.stuck))) {
		if sh.nextLocked().Retention(now) <= counter.Partial {
			return true
		}
	}
	return false
}

// nextLocked returns the counter at which eviction looks next. It goes through all entries, spread
// by scatter, and then through the counters without an entry. The shard must have a counter.
func (sh *shard) nextLocked() *counter.Counter {
	for r := sh.rows.Load(); ; {
		at := sh.hand
		if sh.hand++; at < len(r.entries) {
			if c := r.entries[uint64(at)*scatter%uint64(len(r.entries))].Counter(); c != nil {
				return c
			}
			continue
		}
		if at >= len(r.entries)+len(sh.extra) {
			sh.hand = 0
			continue
		}
		return sh.extra[at-len(r.entries)].c
	}
}

// forgetLocked drops c if its retention is no higher than most, and reports whether it did.
func (t *Table) forgetLocked(sh *shard, c *counter.Counter, most counter.Retention, now int64) bool {
	d, ok := c.Drop(most, now)
	if !ok {
		return false
	}
	sh.removeLocked(c, d.Entry)
	sh.stuck = 0
	if d.Held {
		sh.gone = append(sh.gone, c)
	}
	t.stats.live.Add(-1)
	if d.Retention == counter.Idle {
		t.stats.expired.Add(1)
	} else {
		t.stats.forgotten.Add(1)
	}
	return true
}

// overflowLocked returns the counter that a new key shares with other new keys of its rule in this
// shard, when there is no room for its own. It has no link, because its units belong to no key. If
// more than [maxOverflow] rules overflow in one shard and no overflow counter is idle, the key gets
// a counter that refuses everything: the safe side.
func (t *Table) overflowLocked(sh *shard, rule *limit.Rule, now int64) *counter.Counter {
	c := sh.overflowOf(rule)
	if c == nil {
		c = counter.New(overflowKey, rule, 0, nil, nil, now)
		if len(sh.overflow) >= maxOverflow && !sh.dropOverflowLocked(now) {
			c.RefuseAll()
			return c
		}
		sh.overflow = append(sh.overflow, c)
	}
	c.Follow(t.link, now) // the fallback of an outage applies here as well
	return c
}

// overflowOf returns the overflow counter of a rule, or nil.
func (sh *shard) overflowOf(rule *limit.Rule) *counter.Counter {
	for _, c := range sh.overflow {
		if c.Matches(overflowKey, rule) {
			return c
		}
	}
	return nil
}

// dropOverflowLocked drops one overflow counter that holds no units, and reports whether there was
// one.
func (sh *shard) dropOverflowLocked(now int64) bool {
	i := slices.IndexFunc(sh.overflow, func(c *counter.Counter) bool { return c.Retention(now) == counter.Idle })
	if i >= 0 {
		sh.overflow = slices.Delete(sh.overflow, i, i+1)
	}
	return i >= 0
}
