package local

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/internal/waitqueue"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Limiter limits keys by rules within this process. Build it with [New]. It is
// safe for concurrent use; a check does no I/O, waits for nothing but the
// holders of short locks, and allocates nothing for a known key.
//
// A nil or zero Limiter refuses every check.
//
// It does not share anything with other processes, does not survive its own,
// and may forget a key that is not being refused when there are more keys than
// [Options.MaxKeys].
type Limiter struct {
	table   *table.Table
	clock   clock.Clock
	queues  waitqueue.Queues
	invalid atomic.Int64
}

// New returns a limiter that has seen no key. Close it to stop its goroutines.
func New(o Options) (*Limiter, error) {
	c := clocks.Or(o.Clock)
	t, err := table.New(table.Options{MaxKeys: o.MaxKeys, MaxRemembered: o.MaxRemembered, Clock: c})
	if err != nil {
		return nil, err
	}
	return &Limiter{table: t, clock: c}, nil
}

// Take admits n units of key under rule, all or none, and describes the
// decision. n of 0 consumes nothing and is allowed. A question that cannot be
// asked (n below 0, a nil or zero rule) is refused for ever, with
// [limit.SourceInvalid].
func (l *Limiter) Take(key string, rule *limit.Rule, n int64) limit.Result {
	if !l.askable(rule, n) {
		return l.takeParts(key, rule, n)
	}
	res, _ := l.table.Take(l.clock, key, rule, n)
	return res
}

// TakeAtMost admits what is left of key under rule, up to n units, and returns
// how many those are. Allowed tells whether it was any; if not, RetryAfter is
// when there will be one. A dry run grants all of them, and consumes all or
// none. The rest is as with [Limiter.Take].
func (l *Limiter) TakeAtMost(key string, rule *limit.Rule, n int64) (granted int64, res limit.Result) {
	askable := l.askable(rule, n)
	switch {
	case !askable && !l.combined(rule, n):
		return 0, decision.Invalid(rule)
	case rule.IsDryRun():
		return n, l.Take(key, rule, n)
	case !askable:
		return decision.TakeLeft(n,
			func() limit.Result { return l.Peek(key, rule) },
			func(n int64) limit.Result { return l.Take(key, rule, n) })
	}
	return l.table.TakeAtMost(key, rule, n, int64(l.clock.Now()))
}

// Refund hands n units of key back, because the call that they were taken for
// did not happen, and returns how many: as far as so many count, the newest
// first, so that a key is never better off than if it had not been used. A
// question that cannot be asked hands nothing back. Of a sliding window the units of the oldest
// bucket count in part: then n are taken off, and the answer is by how many fewer count now.
//
// Do it soon: a unit that no longer counts cannot be handed back; a newer one would be
// handed back in its place. Callers who have reserved keep their times: of a token bucket no more
// comes back than they leave room for.
func (l *Limiter) Refund(key string, rule *limit.Rule, n int64) (back int64) {
	if !l.askable(rule, n) {
		return l.least(rule, n, func(part *limit.Rule) int64 { return l.Refund(key, part, n) })
	}
	return l.table.Refund(key, rule, n, int64(l.clock.Now()))
}

// Charge counts n units of key, whether they fit or not, and returns how many. It is for a cost that
// is known only afterwards: take an estimate before the work, and after it charge what is missing,
// or give back what is too much with [Limiter.Refund].
//
// Units above the limit are a debt: checks are refused until it is repaid. A token bucket
// owes at most as many units as it holds, and a sliding log none. The rest is forgiven. A
// window counts all units until they leave it. Callers that have reserved units keep their times. A
// dry run consumes them as well. A question that cannot be asked charges nothing.
func (l *Limiter) Charge(key string, rule *limit.Rule, n int64) (charged int64) {
	if !l.askable(rule, n) {
		return l.least(rule, n, func(part *limit.Rule) int64 { return l.Charge(key, part, n) })
	}
	charged, _ = l.table.Charge(key, rule, min(n, arith.MaxUnits), int64(l.clock.Now()))
	return charged
}

// Set makes used units of key count, whatever was counted before. More than the
// limit is a debt, but for a sliding log, which holds no more than its limit.
// Errors: [limit.ErrInvalidN] for used < 0, [limit.ErrNilRule] for a nil or
// zero rule, and [limit.ErrClosed] from a nil or zero Limiter; then nothing changes.
func (l *Limiter) Set(key string, rule *limit.Rule, used int64) error {
	if l.combined(rule, used) {
		return decision.EachPart(rule, func(part *limit.Rule) error { return l.Set(key, part, used) })
	}
	if !l.askable(rule, used) {
		return fmt.Errorf("local: set: %w", cmp.Or(decision.Askable(rule, used), limit.ErrClosed))
	}
	l.table.Set(key, rule, used, int64(l.clock.Now()))
	return nil
}

// Reset forgets what has been used of key under rule. It is [Limiter.Set] to 0.
func (l *Limiter) Reset(key string, rule *limit.Rule) error { return l.Set(key, rule, 0) }

// Peek describes where key stands under rule: what Take of 1 unit would
// answer. It consumes nothing, and leaves no trace of an unknown key.
func (l *Limiter) Peek(key string, rule *limit.Rule) limit.Result {
	switch {
	case l.askable(rule, 1):
		return l.table.Peek(l.clock, key, rule)
	case !l.combined(rule, 1):
		return decision.Invalid(rule)
	}
	return decision.Tightest(rule, func(part *limit.Rule) limit.Result { return l.Peek(key, part) }).Result
}

// Allow is AllowN of 1 unit.
func (l *Limiter) Allow(key string, rule *limit.Rule) bool { return l.AllowN(key, rule, 1) }

// AllowN is Take for callers who need no more than yes or no; it is faster.
func (l *Limiter) AllowN(key string, rule *limit.Rule, n int64) bool {
	if !l.askable(rule, n) {
		return l.takeParts(key, rule, n).Allowed
	}
	allowed, _, _ := l.table.AllowBy(l.clock, key, rule, n)
	return allowed || rule.IsDryRun()
}

// askable reports whether the table can decide. If not, and the rule is not combined either, it counts
// a question that cannot be asked.
func (l *Limiter) askable(rule *limit.Rule, n int64) bool {
	if l == nil {
		return false
	}
	if rule.Valid() && arith.Of(rule).Algorithm != arith.Combined && n >= 0 && l.table != nil {
		return true
	}
	if !l.combined(rule, n) {
		l.invalid.Add(1)
	}
	return false
}

// Close stops the limiter's goroutines and returns when they have ended. Callers who wait
// (see [Limiter.Wait]) stop waiting. Later checks are still answered, from the same
// counters. Further calls do nothing.
//
// It always returns nil: it has the form of an [io.Closer].
func (l *Limiter) Close() error {
	if l != nil && l.table != nil {
		l.queues.Close()
		l.table.Close()
	}
	return nil
}

// Shutdown is [Limiter.Close]. Nothing here can hang, so ctx is not looked at: it is there so
// that this limiter and that of package hybrid are stopped alike.
func (l *Limiter) Shutdown(context.Context) error { return l.Close() }
