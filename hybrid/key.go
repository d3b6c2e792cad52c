package hybrid

import (
	"context"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Key is one key under one rule, for callers who check it often: most of its checks need no
// look-up. Its methods are those of the [Limiter] that it comes from. A Key has no state of
// its own: its checks and those of the Limiter for the same key count together. A program
// that uses many Keys gains nothing. It is safe for concurrent use. A nil or zero Key
// refuses every check.
//
// Keep one Key for a key; do not make one for each check.
type Key struct {
	handle table.Handle // not bound: every check is invalid
	lim    *Limiter
}

// Key binds a key to a rule. If [Limiter.CheckRule] rejects the rule, every check is
// refused.
func (l *Limiter) Key(key string, rule *limit.Rule) *Key {
	var t *table.Table
	if l.usable(rule, 0) {
		t = l.table
	}
	k := &Key{lim: l}
	k.handle.Bind(t, strings.Clone(key), rule) // the key may be a part of a large string
	return k
}

// whole returns the arguments for the methods of the limiter. A nil or zero Key has a nil
// limiter.
func (k *Key) whole() (l *Limiter, key string, rule *limit.Rule) {
	if k == nil {
		return nil, "", nil
	}
	return k.lim, k.handle.Key(), k.handle.Rule()
}

// Allow is [Limiter.Allow].
func (k *Key) Allow() bool { return k.AllowN(1) }

// AllowN is [Limiter.AllowN].
func (k *Key) AllowN(n int64) bool {
	if k == nil || !k.handle.Bound() || n < 0 || k.handle.Rule().IsDryRun() {
		l, key, rule := k.whole()
		return l.AllowN(key, rule, n)
	}
	ok, src, counted := k.handle.AllowBy(k.lim.clock, n)
	switch {
	case counted && n > 1:
		k.lim.tally.Of(k.handle.Rule()).Together(n, src)
	case counted:
	case n == 1:
		k.lim.tally.Of(k.handle.Rule()).CountOne(ok, src)
	default:
		k.lim.tally.Of(k.handle.Rule()).Count(n, ok, src)
	}
	return ok
}

// Take is [Limiter.Take].
func (k *Key) Take(n int64) limit.Result {
	if k == nil || !k.handle.Bound() || n < 0 {
		l, key, rule := k.whole()
		return l.Take(key, rule, n)
	}
	res, counted := k.handle.Take(k.lim.clock, n)
	if counted {
		return res
	}
	return k.lim.count(k.handle.Rule(), n, res)
}

// Peek is [Limiter.Peek].
func (k *Key) Peek() limit.Result {
	if k == nil || !k.handle.Bound() {
		l, key, rule := k.whole()
		return l.Peek(key, rule)
	}
	return k.handle.Peek(k.lim.clock)
}

// TakeAtMost is [Limiter.TakeAtMost].
func (k *Key) TakeAtMost(n int64) (granted int64, res limit.Result) {
	l, key, rule := k.whole()
	return l.TakeAtMost(key, rule, n)
}

// Refund is [Limiter.Refund].
func (k *Key) Refund(n int64) (back int64) {
	l, key, rule := k.whole()
	return l.Refund(key, rule, n)
}

// Reserve is [Limiter.Reserve].
func (k *Key) Reserve() *limit.Reservation { return k.ReserveN(1) }

// ReserveN is [Limiter.ReserveN].
func (k *Key) ReserveN(n int64) *limit.Reservation {
	l, key, rule := k.whole()
	return l.ReserveN(key, rule, n)
}

// Wait is [Limiter.Wait].
func (k *Key) Wait(ctx context.Context) error { return k.WaitN(ctx, 1) }

// WaitN is [Limiter.WaitN].
func (k *Key) WaitN(ctx context.Context, n int64) error {
	l, key, rule := k.whole()
	return l.WaitN(ctx, key, rule, n)
}

// Set is [Limiter.Set].
func (k *Key) Set(ctx context.Context, used int64) error {
	l, key, rule := k.whole()
	return l.Set(ctx, key, rule, used)
}

// Reset is [Limiter.Reset].
func (k *Key) Reset(ctx context.Context) error { return k.Set(ctx, 0) }
