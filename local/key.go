package local

import (
	"context"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Key is one key under one rule, for callers who ask for it often: a check that a lease
// decides needs no look-up. Its methods are those of the [Limiter] it comes from, and it
// counts together with them: a Key has no state of its own. With many of them a check is not
// faster than by name. It is safe for concurrent use; a nil or zero Key refuses every check.
//
// Keep one of a key rather than make one for each check.
type Key struct {
	handle table.Handle // not bound: nothing can be asked
	lim    *Limiter
}

// Key binds a key to a rule. A rule that cannot be used is refused by each check.
func (l *Limiter) Key(key string, rule *limit.Rule) *Key {
	var t *table.Table
	if l != nil && rule.Valid() {
		t = l.table
	}
	k := &Key{lim: l}
	k.handle.Bind(t, strings.Clone(key), rule) // the key may be part of something large
	return k
}

// limiter returns the limiter to ask, nil from a nil or zero Key.
func (k *Key) limiter() (l *Limiter, key string, rule *limit.Rule) {
	if k == nil {
		return nil, "", nil
	}
	return k.lim, k.handle.Key(), k.handle.Rule()
}

// askable reports whether n units can be asked for.
func (k *Key) askable(n int64) bool {
	if k != nil && k.handle.Bound() && n >= 0 {
		return true
	}
	if k != nil && k.lim != nil {
		k.lim.invalid.Add(1)
	}
	return false
}

// Allow is [Limiter.Allow].
func (k *Key) Allow() bool { return k.AllowN(1) }

// AllowN is [Limiter.AllowN].
func (k *Key) AllowN(n int64) bool {
	if !k.askable(n) {
		return false
	}
	allowed, _, _ := k.handle.AllowBy(k.lim.clock, n)
	return allowed || k.handle.Rule().IsDryRun()
}

// Take is [Limiter.Take].
func (k *Key) Take(n int64) limit.Result {
	if !k.askable(n) {
		_, _, rule := k.limiter()
		return decision.Invalid(rule)
	}
	res, _ := k.handle.Take(k.lim.clock, n)
	return res
}

// Peek is [Limiter.Peek].
func (k *Key) Peek() limit.Result {
	if !k.askable(1) {
		_, _, rule := k.limiter()
		return decision.Invalid(rule)
	}
	return k.handle.Peek(k.lim.clock)
}

// TakeAtMost is [Limiter.TakeAtMost].
func (k *Key) TakeAtMost(n int64) (granted int64, res limit.Result) {
	l, key, rule := k.limiter()
	return l.TakeAtMost(key, rule, n)
}

// Refund is [Limiter.Refund].
func (k *Key) Refund(n int64) (back int64) {
	l, key, rule := k.limiter()
	return l.Refund(key, rule, n)
}

// Reserve is [Limiter.Reserve].
func (k *Key) Reserve() *limit.Reservation { return k.ReserveN(1) }

// ReserveN is [Limiter.ReserveN].
func (k *Key) ReserveN(n int64) *limit.Reservation {
	l, key, rule := k.limiter()
	return l.ReserveN(key, rule, n)
}

// Wait is [Limiter.Wait].
func (k *Key) Wait(ctx context.Context) error { return k.WaitN(ctx, 1) }

// WaitN is [Limiter.WaitN].
func (k *Key) WaitN(ctx context.Context, n int64) error {
	l, key, rule := k.limiter()
	return l.WaitN(ctx, key, rule, n)
}

// Set is [Limiter.Set].
func (k *Key) Set(used int64) error {
	l, key, rule := k.limiter()
	return l.Set(key, rule, used)
}

// Reset is [Limiter.Reset].
func (k *Key) Reset() error { return k.Set(0) }
