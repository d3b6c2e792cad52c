package table

import (
	"cmp"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/counter"
)

const (
	// minSlack is the least number of counters above MaxKeys that a table has room for. Usually it
	// is a quarter of MaxKeys. The room is for new keys that the policy has not judged yet, and for
	// counters that the policy would drop but that must stay.
	minSlack = 4096
	// evictLooks is among how many counters the victim is chosen when a new key needs room.
	evictLooks = 16
	// evictKept is how many of these may be kept for what a trace does not hold, see [counter.Kept], before
	// one of them goes. Where half of the counters are kept, one eviction in 500 takes one of these; where a
	// quarter is, one in 65,536.
	evictKept = 8
	// evictMost bounds how many more are looked at if all of these must stay: about as many as a
	// shard has.
	evictMost = shardKeys
	// scatter spreads consecutive looks of eviction over the rows. If eviction emptied row after
	// row, the rows that it has not reached for longest would be full, and a fifth of the keys of a
	// full table would find no entry. scatter is odd and the number of entries a power of two, so
	// every entry is reached.
	scatter = 40503*rowSize + 1
)

// makeRoomLocked drops a counter, and remembers what it counted. It reports whether there was one that
// may go. Of evictLooks counters it prefers one that was not used lately and that the policy does not
// hold. It does not matter whether a counter refuses: otherwise keys that are used up on purpose would
// take the room of all others.
//
// If none of these may go, it takes the next of the shard that may. If all counters of the shard were
// looked at in vain, as in an outage, it drops one of those whose units were not reported. They are lost
// for other nodes, and are counted. From then on it looks at only evictLooks for each further key, so
// that a flood of new keys costs little.
func (t *Table) makeRoomLocked(sh *shard, now int64) bool {
	e := eviction{t: t, sh: sh, now: now}
	var looked, busy [evictLooks]*counter.Counter
	n, k := 0, 0
	for range min(evictLooks, sh.live) {
		c := sh.nextLocked()
		if c.IsBusy() {
			busy[k] = c
			k++
			continue
		}
		if looked[n] = c; e.drop(c) {
			return true
		}
		n++
	}
	n += copy(looked[n:], busy[:k])
	if slices.ContainsFunc(looked[n-k:n], e.drop) {
		return true
	}
	sh.stuck += evictLooks
	for range min(evictMost, sh.live-sh.stuck) {
		if sh.stuck++; e.drop(sh.nextLocked()) {
			return true
		}
	}
	return t.dropUnreportedLocked(sh, looked[:n], now)
}

// dropUnreportedLocked drops one of some counters whose units were not reported: that which has used
// the smallest share of its limit. So keys that an attacker asks once go before those that are used up.
func (t *Table) dropUnreportedLocked(sh *shard, list []*counter.Counter, now int64) bool {
	type candidate struct {
		c     *counter.Counter
		share int
	}
	var room [evictLooks]candidate
	by := room[:len(list)]
	for i, c := range list {
		by[i] = candidate{c, c.Share(now)}
	}
	slices.SortStableFunc(by, func(a, b candidate) int { return cmp.Compare(a.share, b.share) })
	for _, x := range by {
		if _, ok := t.forgetLocked(sh, x.c, counter.Unreported, now); ok {
			return true
		}
	}
	return false
}

// eviction looks for a counter that may go.
type eviction struct {
	t     *Table
	sh    *shard
	now   int64
	kept  int              // counters that were found to be kept
	first *counter.Counter // the first of them
}

// drop drops c if that loses nothing, or instead the first one that is kept if there are too many. It
// reports whether it did.
func (e *eviction) drop(c *counter.Counter) bool {
	r, ok := e.t.forgetLocked(e.sh, c, counter.Used, e.now)
	if ok || r != counter.Kept {
		return ok
	}
	if e.kept++; e.first == nil {
		e.first = c
	}
	if e.kept == evictKept {
		_, ok = e.t.forgetLocked(e.sh, e.first, counter.Kept, e.now)
	}
	return ok
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

// forgetLocked drops c if its retention is no higher than most, and remembers what it counted. It
// returns the retention, and whether it did.
func (t *Table) forgetLocked(sh *shard, c *counter.Counter, most counter.Retention, now int64) (r counter.Retention, ok bool) {
	print := sh.printOf(c)
	d, ok := c.Drop(most, now)
	if !ok {
		return d.Retention, false
	}
	sh.removeLocked(c, d.Entry)
	if d.Held {
		sh.gone = append(sh.gone, c)
	}
	if d.Trace != (algorithm.Trace{}) {
		t.memory.remember(sh.traces, print, d.Rule, d.Trace, now)
	}
	t.stats.live.Add(-1)
	if d.Retention == counter.Idle {
		t.stats.expired.Add(1)
	} else {
		t.stats.forgotten.Add(1)
	}
	if d.Retention <= counter.Used {
		sh.stuck = 0
	}
	return d.Retention, true
}

// printOf returns the fingerprint of the key of a counter; 0 if the counter was dropped.
func (sh *shard) printOf(c *counter.Counter) uint64 {
	if e := c.Entry(); e != nil {
		return e.Print()
	}
	for _, x := range sh.extra {
		if x.c == c {
			return x.print
		}
	}
	return 0
}
