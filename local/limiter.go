package local

import (
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Limiter limits keys by rules within this process. Build it with [New]. It is
// safe for concurrent use; a check does no I/O, waits for nobody but the
// holders of short locks, and allocates nothing for a key that is cached.
//
// The zero Limiter refuses every check.
//
// It does not share anything with other processes, does not survive its own,
// and may forget a key that is not being refused when there are more keys than
// [Options.MaxKeys].
type Limiter struct {
	table   *Table
	clock   clock.Clock
	invalid atomic.Int64
}

// New returns a limiter that has seen no key. Close it to stop its goroutines.
func New(o Options) (*Limiter, error) {
	c := clock.Or(o.Clock)
	t, err := NewTable(TableOptions{MaxKeys: o.MaxKeys, Clock: c})
	if err != nil {
		return nil, err
	}
	return &Limiter{table: t, clock: c}, nil
}

// Take admits n units of key under rule, all or none, and describes the
// decision. n of 0 consumes nothing and is allowed. A question that cannot be
// asked (n below 0, a nil or zero rule) is answered by [limit.Refused].
func (l *Limiter) Take(key string, rule *limit.Rule, n int64) limit.Result {
	if !l.askable(rule, n) {
		return limit.Refused(rule)
	}
	return l.table.Take(key, rule, n, int64(l.clock.Now()))
}

// Peek describes where key stands under rule: what Take of 1 unit would
// answer. It consumes nothing, and leaves no trace of an unknown key.
func (l *Limiter) Peek(key string, rule *limit.Rule) limit.Result {
	if !l.askable(rule, 1) {
		return limit.Refused(rule)
	}
	return l.table.Peek(key, rule, 1, int64(l.clock.Now()))
}

// Allow is AllowN of 1 unit.
func (l *Limiter) Allow(key string, rule *limit.Rule) bool { return l.AllowN(key, rule, 1) }

// AllowN is Take for those who need no more than yes or no; it is faster.
func (l *Limiter) AllowN(key string, rule *limit.Rule, n int64) bool {
	if !l.askable(rule, n) {
		return false
	}
	allowed, _ := l.table.Allow(key, rule, n, int64(l.clock.Now()))
	return allowed
}

func (l *Limiter) askable(rule *limit.Rule, n int64) bool {
	if rule.Valid() && n >= 0 && l.table != nil {
		return true
	}
	l.invalid.Add(1)
	return false
}

// Stats returns the figures of the limiter.
func (l *Limiter) Stats() Stats {
	s := Stats{Invalid: l.invalid.Load()}
	if l.table != nil {
		s.TableStats = l.table.Stats()
	}
	return s
}

// Close stops the limiter's goroutines and returns when they have ended. Later
// checks are still answered, from the same counters, only more slowly; see
// [Table.Close]. Further calls do nothing.
func (l *Limiter) Close() {
	if l.table != nil {
		l.table.Close()
	}
}
