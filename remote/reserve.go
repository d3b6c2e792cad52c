package remote

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Reservation is the answer to [Limiter.Reserve]: units that may be used after a
// delay, or a refusal. The zero Reservation is not OK. It is
// safe for concurrent use and must not be copied.
type Reservation struct {
	l    *Limiter
	key  string
	rule *limit.Rule
	ok   bool
	res  limit.Result

	held  int64 // units to refund
	of    redisstore.Booking
	spent atomic.Bool
}

// Reserve is [Limiter.ReserveN] of one unit.
func (l *Limiter) Reserve(ctx context.Context, key string, rule *limit.Rule) (*Reservation, error) {
	return l.ReserveN(ctx, key, rule, 1)
}

// ReserveN takes n units of key that may be used later. Only a leaky bucket can be
// booked ahead: its units queue, and Delay is how long until the n fit. They
// count in Redis at once, so that all later callers come after them. OK is false,
// and nothing is consumed, for more units than the leaky bucket holds and for a delay
// above [limit.MaxWindow].
//
// A window and a log count past units and cannot be booked ahead: a unit that
// becomes free later may be taken by any caller. Their units are reserved if they
// are admitted now; if not, OK is false and Delay is how long to wait before
// another try.
//
// A dry run is always OK and never delayed; its units are consumed if they fit.
//
// The errors are those of [Limiter.Take]; with an error there is no reservation.
func (l *Limiter) ReserveN(ctx context.Context, key string, rule *limit.Rule, n int64) (*Reservation, error) {
	return l.reserve(ctx, key, rule, n, limit.MaxWindow)
}

// reserve is ReserveN with a longest delay: units that would have to wait for more
// than most are not booked.
func (l *Limiter) reserve(ctx context.Context, key string, rule *limit.Rule, n int64, most time.Duration) (*Reservation, error) {
	if err := decision.Askable(rule, n); err != nil {
		return nil, redisstore.Wrap(err)
	}
	if rule.Parts() != nil {
		return nil, fmt.Errorf("remote: %w: %v cannot be reserved: reserve each of its rules", limit.ErrUnsupported, rule)
	}
	r := &Reservation{l: l, key: key, rule: rule}
	a := l.store.SumUp(redisstore.Book, []limit.Check{{Key: key, Rule: rule, N: n}})
	if !rule.IsDryRun() {
		a.Asks[0].Ahead = min(most, limit.MaxWindow)
		if a.Mode == redisstore.Book && rule.Algorithm() == limit.AlgorithmFunnel {
			a.Mode = redisstore.Ahead
		}
	}
	t, _, err := l.store.Take(ctx, a.Mode, a.Asks...)
	if err != nil {
		return nil, err
	}
	fits, answer := a.Fits(&t, 0), &t.Answers[0]
	r.of = redisstore.Booking{At: t.Now, Level: answer.Level}
	r.res = answer.Result(n)
	if rule.Algorithm() == limit.AlgorithmFunnel && n <= rule.Limit() {
		is, level := arith.Of(rule), answer.Level
		if !fits {
			level = is.Add(level, is.Cost(n))
		}
		r.res.RetryAfter = is.Sub(level, is.Full).Ceil()
		r.res.Allowed = fits && r.res.RetryAfter == 0
	}
	r.ok = fits || rule.IsDryRun()
	if fits {
		r.held = n
	} else if r.ok {
		r.res = decision.Judged(rule, r.res)
		r.res.RetryAfter = 0
	}
	return r, nil
}

// OK reports whether the caller may use the units after Delay.
func (r *Reservation) OK() bool { return r != nil && r.ok }

// Delay returns how long after the call of Reserve the units may be used; it
// does not count down. If there are none: the shortest time after which asking
// again may help, or [limit.Never].
func (r *Reservation) Delay() time.Duration { return r.Result().RetryAfter }

// Result returns the whole answer. Allowed reports whether the units can be used at once; if
// not, RetryAfter is the Delay.
func (r *Reservation) Result() limit.Result {
	if r == nil || !r.ok && r.res.RetryAfter == 0 {
		return limit.Result{RetryAfter: limit.Never, Source: limit.SourceInvalid}
	}
	return r.res
}

// Cancel refunds the units, for work that will not be done. Only the first call has
// an effect, even if several goroutines call it at a time; the others return nil at
// once. Like every call of this package it is executed at most once: with an error it
// is unknown whether the units were refunded, and another call does nothing. If ctx
// has already ended, Redis is not called, and Cancel may be called again. A
// reservation that is nil or not OK holds nothing. If units were refunded, the nodes
// of package hybrid are notified, see [Limiter.Set].
//
// Until Delay has passed all units are refunded, unless others have booked behind.
// Those keep their times, so that a lower level would admit new callers at these times
// once more: while the leaky bucket is above its capacity, only what was booked last is
// refunded. After Delay only those units of a leaky bucket are refunded that have not
// leaked: the others have made room for other callers. Units of a window that is over,
// or from before a reset, no longer count.
//
// Redis does not know which reservations are cancelled. If several are, at
// different times after their delays, each refunds up to as much as has leaked
// meanwhile of those that were cancelled before it and booked before it.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r == nil || r.held == 0 || r.spent.Load() {
		return nil
	}
	if ctx != nil && ctx.Err() != nil {
		return redisstore.Wrap(ctx.Err())
	}
	if !r.spent.CompareAndSwap(false, true) {
		return nil
	}
	_, err := r.l.refund(ctx, r.key, r.rule, r.held, &r.of)
	return err
}
