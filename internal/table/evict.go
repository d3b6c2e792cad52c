package table

import "github.com/hybridlimit/hybridlimit/limit"

const (
	// minSlack is the least number of counters above MaxKeys that a table has room for.
	// Otherwise it is a quarter of MaxKeys. The room is for new keys that the policy has not
	// judged yet, and for counters that it would drop and that must stay.
	minSlack = 4096
	// evictLooks bounds how many counters are looked at to make room for one.
	evictLooks = 16
	// maxOverflow bounds the overflow counters of a shard. There is one for each rule.
	maxOverflow = 64
)

// overflowKey is the key of overflow counters. They are not in the index, so that it cannot
// clash with a key of the user.
const overflowKey = "(overflow)"

// isUsedLocked reports whether c was asked since the sweep last looked at it, as far as its
// trace tells.
func (c *Counter) isUsedLocked() bool { return c.trace() != c.seen }

// trace changes when c is asked: by what is left of its lease, or by itself.
func (c *Counter) trace() uint32 {
	t := uint64(c.last)
	if c.entry != nil {
		t ^= c.entry.word.Load()
	}
	return uint32(t) ^ uint32(t>>32)
}

// makeRoomLocked forgets a counter that would refuse nobody, and reports whether there was
// one among evictLooks: one that was not used lately and that the policy does not hold, else
// the first of the others that may go.
func (t *Table) makeRoomLocked(sh *shard, now int64) bool {
	r := sh.rows.Load()
	var busy [evictLooks]*Counter
	n, looks := 0, 0
	for range r.entries {
		c := r.entries[sh.hand].counter.Load()
		sh.hand = (sh.hand + 1) % len(r.entries)
		switch {
		case c == nil:
			continue
		case c.isBusy():
			busy[n] = c
			n++
		case t.forgetLocked(sh, c, worthPartial, now):
			return true
		}
		if looks++; looks == evictLooks {
			break
		}
	}
	for _, c := range busy[:n] {
		if t.forgetLocked(sh, c, worthPartial, now) {
			return true
		}
	}
	return false
}

// isBusy reports whether c was used lately, or is held by the policy.
func (c *Counter) isBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held || c.isUsedLocked()
}

// forgetLocked removes c if it is worth no more than most, and reports whether it did.
func (t *Table) forgetLocked(sh *shard, c *Counter, most worth, now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := c.isUsedLocked()
	if c.lent != unitsRefused {
		c.revokeLocked(now) // else units might be admitted after c was looked at
	}
	w := c.worthLocked(now)
	if w > most {
		if c.grantLocked(); !used {
			c.seen = c.trace() // this was no use
		}
		return false
	}
	c.revokeLocked(now)
	c.dead = true
	sh.removeLocked(c)
	if c.held {
		sh.gone = append(sh.gone, c)
	}
	t.stats.live.Add(-1)
	if w == worthIdle {
		t.stats.expired.Add(1)
	} else {
		t.stats.forgotten.Add(1)
	}
	return true
}

// overflowLocked returns the counter that a new key shares with other new keys of its rule
// in this shard, when there is no room for its own. It has no link: its units belong to no
// key. If more than [maxOverflow] rules overflow in one shard and no overflow counter is
// idle, the key gets a counter that refuses everything: the safe side.
func (t *Table) overflowLocked(sh *shard, rule *limit.Rule, now int64) *Counter {
	id := identOf("", rule)
	c := sh.overflow[id]
	if c == nil {
		c = newCounter(overflowKey, rule, 0, nil, nil, now)
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
		c.lock(now)
		c.state() // unfolds it with the weight that it was folded with

		// The fallback of an outage applies here as well.
		c.setMode(t.link.unsorted.mode.Load())
		c.unlock()
	}
	return c
}

// dropOverflowLocked drops one overflow counter that is as if never used, and reports
// whether there was one.
func (sh *shard) dropOverflowLocked(now int64) bool {
	for id, c := range sh.overflow {
		c.lock(now)
		w := c.worthLocked(now)
		c.unlock()
		if w == worthIdle {
			delete(sh.overflow, id)
			return true
		}
	}
	return false
}
