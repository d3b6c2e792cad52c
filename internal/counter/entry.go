package counter

import (
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Entry is what an index has for a key: half a cache line with all that most checks need.
//
// A check reads it without a lock: first the word, then the rest. It uses the rest only if the word
// is still the same when it is swapped. An entry is later used for other keys, and the generation
// in the word shows whether that has happened. The generation wraps: if 16 leases begin and end
// between the read and the swap of one check, all within a tick, they may leave the same word
// (ABA). Then the check is decided by the earlier lease.
type Entry struct {
	word    atomic.Uint64
	print   atomic.Uint64           // fingerprint of key and rule; 0: the entry is free
	lease   atomic.Pointer[lease]   // how to read the word; valid if the word has units
	counter atomic.Pointer[Counter] // nil: the entry is free
}

// Take decides a check for n units, at least 1, of the key with this fingerprint. level is what a
// leaky bucket holds afterwards, in ticks. The first check that is admitted after a report locks
// the counter, to queue it.
func (e *Entry) Take(print uint64, rule *limit.Rule, n, now int64) (level int64, src limit.Source, v Verdict) {
	for {
		w := e.word.Load()
		if unitsOf(w) == 0 || e.print.Load() != print {
			return 0, 0, Unanswered
		}
		l := e.lease.Load()
		if l == nil || l.rule != rule {
			return 0, 0, Unanswered
		}
		is, level, v := l.decide(w, n, now)
		c := e.counter.Load()
		switch {
		case v == Refused && e.word.Load() != w, v == Admitted && !e.word.CompareAndSwap(w, is):
			continue
		case v == Admitted && w&unqueued != 0 && c != nil: // nil: after an ABA
			c.queueLeased(now)
		}
		return level, l.source, v
	}
}

// Peek is Take of one unit that consumes nothing. level is what the bucket holds before that unit.
// Peek does not answer while the counter is not queued: a call of the counter then makes it fetch a
// fresh view.
func (e *Entry) Peek(print uint64, rule *limit.Rule, now int64) (level int64, src limit.Source, v Verdict) {
	w := e.word.Load()
	l := e.lease.Load()
	if unitsOf(w) == 0 || w&unqueued != 0 || e.print.Load() != print || l == nil || l.rule != rule {
		return 0, 0, Unanswered
	}
	if _, level, v = l.decide(w, 1, now); v == Unanswered || e.word.Load() != w {
		return 0, 0, Unanswered
	}
	return level - l.one, l.source, v
}

// Counter returns the counter of the entry, nil if it is free.
func (e *Entry) Counter() *Counter { return e.counter.Load() }

// Print returns the fingerprint of the entry, 0 if it is free.
func (e *Entry) Print() uint64 { return e.print.Load() }

// Entry returns the entry of c, nil if it has none. The caller must prevent other calls from
// entering and dropping c.
func (c *Counter) Entry() *Entry { return c.entry }

// Enter gives c, which has no entry, the free entry e. Call it while no other goroutine knows c, or
// from within Move.
func (c *Counter) Enter(e *Entry, print uint64) {
	c.entry = e // before a check can find c
	e.print.Store(print)
	e.counter.Store(c)
}

// MoveTo moves c from its entry to another that was never used and that no check can find yet. The
// lease moves too. The old entry is never used again: a check that has found it finds no units
// there, and calls c itself.
func (c *Counter) MoveTo(to *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry
	to.print.Store(e.print.Load())
	to.lease.Store(e.lease.Load())
	to.counter.Store(c)
	to.word.Store(e.word.Swap(0))
	c.entry = to
}

// leaveLocked frees the entry of c. The lease of c must be revoked.
func (c *Counter) leaveLocked() {
	if e := c.entry; e != nil {
		c.entry = nil
		e.print.Store(0)
		e.counter.Store(nil)
		e.lease.Store(nil)
	}
}
