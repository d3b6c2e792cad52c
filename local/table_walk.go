package local

import "sync/atomic"

// Range calls f for every live counter until it returns false. Counters that
// are created, evicted or forgotten meanwhile may be seen or not; every other
// is seen, some of them twice. Overflow counters are not shown: they belong to
// no key. f is called under locks of the table: it may call methods of the
// counter and must be quick, but must not call the table.
func (t *Table) Range(f func(*Counter) bool) {
	t.hold(1)
	defer t.hold(-1)
	// A counter may move from the cache to the side table meanwhile, but, held
	// there, not back. So whoever is not seen here is seen there.
	if t.visitCache(f) {
		t.awaitEviction(t.evicting.Load()) // of one that was between the two
		t.visitSide(f)
	}
}

// hold stops (+1) and resumes (-1) the promotion of counters. When it returns,
// every promotion that had begun is over.
func (t *Table) hold(delta int) {
	for i := range t.side {
		sh := &t.side[i]
		sh.mu.Lock()
		sh.hold += delta
		sh.mu.Unlock()
	}
}

func (t *Table) visitCache(f func(*Counter) bool) (on bool) {
	t.writeMu.RLock()
	defer t.writeMu.RUnlock()
	if t.view.Load() == nil {
		return true
	}
	on = true
	t.cache.IterValues(func(c *Counter) (stop bool) {
		on = c.isDead() || f(c)
		return !on
	})
	return on
}

func (t *Table) visitSide(f func(*Counter) bool) {
	for i := range t.side {
		if !t.side[i].visit(f) {
			return
		}
	}
}

func (sh *sideShard) visit(f func(*Counter) bool) (on bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, c := range sh.counters {
		if !c.isDead() && !f(c) {
			return false
		}
	}
	return true
}

// tableCounts is what a table counts as it goes, off the hot path only.
type tableCounts struct {
	live, side                 atomic.Int64
	created, expired           atomic.Int64
	evictions, putBack, merged atomic.Int64
	dropped, replaced, revived atomic.Int64
	overflow, limbo            atomic.Int64
	forgotten                  [worthPinned + 1]atomic.Int64
}
