package table

import (
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Verdict is what a lease says of a check.
type Verdict uint8

const (
	// Unanswered means that the counter has to decide. Nothing was consumed.
	Unanswered Verdict = iota
	// Refused means that nothing was consumed.
	Refused
	// Admitted means that all units were consumed.
	Admitted
)

// entry is what the index has of a key: half a cache line with all that most checks need.
//
// A check reads it without a lock: first the word, then the rest. It trusts the rest only if
// the word is still the same when it is swapped. An entry serves other keys later, and the
// generation in the word says whether that has happened. The generation wraps: if 16 leases
// begin and end between the read and the swap of one check, and all within a tick, they may
// leave the same word (ABA), and the check is decided by the lease of before.
type entry struct {
	word    atomic.Uint64
	print   atomic.Uint64           // fingerprint of key and rule; 0: the entry is free
	lease   atomic.Pointer[lease]   // says how to read the word; valid if the word has units
	counter atomic.Pointer[Counter] // nil: the entry is free
}

// take decides a check for n units, at least 1, of the key with this fingerprint. level is
// what a leaky bucket holds after it, in ticks.
func (e *entry) take(print uint64, rule *limit.Rule, n, now int64) (level int64, src limit.Source, v Verdict) {
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
		if v == Unanswered || v == Refused && e.word.Load() == w || v == Admitted && e.word.CompareAndSwap(w, is) {
			return level, l.source, v
		}
	}
}

// peek is take of one unit that consumes nothing. level is from before.
func (e *entry) peek(print uint64, rule *limit.Rule, now int64) (level int64, src limit.Source, v Verdict) {
	w := e.word.Load()
	l := e.lease.Load()
	if unitsOf(w) == 0 || e.print.Load() != print || l == nil || l.rule != rule {
		return 0, 0, Unanswered
	}
	if _, level, v = l.decide(w, 1, now); v == Unanswered || e.word.Load() != w {
		return 0, 0, Unanswered
	}
	return level - l.one<<l.coarse, l.source, v
}
