package local

import (
	"runtime"
	"weak"
)

// closeCollections bounds how many garbage collections Close runs to see the
// view go. One is enough unless a reader has lost its processor meanwhile.
const closeCollections = 20

// dropView takes the view away and reports whether its last reader has gone.
// If not, the cache is left running: two goroutines too many are better than
// a panic in a check.
func (t *Table) dropView() bool {
	last := weak.Make(t.view.Swap(nil))
	for range closeCollections {
		runtime.GC()
		if last.Value() == nil {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// Close stops the table's goroutines and lets go of the cache. Its counters
// are kept: later checks find them, and create others as room permits. They
// cost more then, and nothing is cleaned up any longer except to make room.
// Further calls do nothing.
//
// A ristretto cache must not be closed while it is read, and a lookup that
// announced itself would pay for that each time. So Close takes the view away
// and lets the garbage collector prove that nobody holds it any more; that is
// the one collection that Close costs. Readers whose answer depends on the cache
// hold it until they have unlocked a counter or a side shard. Close locks all of
// these afterwards, which is what orders their reading before the closing.
func (t *Table) Close() {
	t.closeOnce.Do(func() {
		close(t.stop)
		<-t.kept
		t.writeMu.Lock()
		defer t.writeMu.Unlock()
		t.cache.Wait() // all evictions are over now, and there will be no more
		t.evictionOver()
		t.hold(1) // what is brought home stays there
		defer t.hold(-1)
		t.bringHome()
		if t.dropView() {
			t.visitSide(func(*Counter) bool { return true })
			t.closing.Store(true)
			t.cache.Close()
		}
	})
}

// bringHome puts every counter of the cache into the side table as well, except
// those that are as if never used.
func (t *Table) bringHome() {
	now := int64(t.clock.Now())
	var all []*Counter
	t.cache.IterValues(func(c *Counter) (stop bool) {
		all = append(all, c)
		return false
	})
	for _, c := range all {
		sh := t.shard(c.hash)
		sh.mu.Lock()
		if sh.counters[c.ident()] == nil && !c.isDead() && !t.forgetLocked(c, worthIdle, now) {
			t.putLocked(sh, c)
		}
		sh.mu.Unlock()
	}
}
