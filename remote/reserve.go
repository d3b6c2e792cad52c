package remote

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Reservation is the answer to [Limiter.Reserve]: units that may be used after a
// delay, or the news that there are none. The zero Reservation is not OK. It is
// safe for concurrent use and must not be copied.
type Reservation struct {
	l     *Limiter
	key   string
	rule  *limit.Rule
	ok    bool
	delay time.Duration

	held  int64 // units to hand back
	of    redisstore.Booking
	spent atomic.Bool
}

// Reserve takes n units of key that may be used later. Only a leaky bucket can be
// booked ahead: its units queue, and Delay is how long until the n fit. They
// count in Redis at once, so that everybody else comes after them. OK is false,
// and nothing is consumed, for more units than the leaky bucket holds and for a delay
// above [limit.MaxWindow].
//
// A window and a log count what has happened, and have no place for units of
// the future: those that would be free at some time are anybody's until then.
// Their units are reserved if they are admitted now; if not, OK is false and
// Delay is when to come back.
//
// A dry run is always OK and never delayed; its units are consumed if they fit.
//
// The errors are those of [Limiter.Take]; with an error there is no reservation.
func (l *Limiter) Reserve(ctx context.Context, key string, rule *limit.Rule, n int64) (*Reservation, error) {
	return l.reserve(ctx, key, rule, n, limit.MaxWindow)
}

// reserve is Reserve for those who can wait for most at the longest: what would
// take longer is not booked.
func (l *Limiter) reserve(ctx context.Context, key string, rule *limit.Rule, n int64, most time.Duration) (*Reservation, error) {
	if err := askable(rule, n); err != nil {
		return nil, wrap(err)
	}
	r := &Reservation{l: l, key: key, rule: rule}
	if n > rule.Limit() && !rule.IsDryRun() {
		r.delay = limit.Never
		return r, nil
	}
	a := l.sumUp(redisstore.Book, []limit.Check{{Key: key, Rule: rule, N: n}})
	if !rule.IsDryRun() {
		a.asks[0].Ahead = min(most, limit.MaxWindow)
	}
	t, _, err := l.store.Take(ctx, a.mode, a.asks...)
	if err != nil {
		return nil, err
	}
	fits, answer := a.fits(&t, 0), &t.Answers[0]
	r.of = redisstore.Booking{At: t.Now, Level: answer.Level}
	if r.delay = answer.Result(fits, n).RetryAfter; rule.Algorithm() == limit.AlgorithmFunnel {
		is, level := arith.Of(rule.Arith()), answer.Level
		if !fits {
			level = is.Add(level, is.Cost(n))
		}
		r.delay = is.Sub(level, is.Full).Ceil()
	}
	r.ok = fits || rule.IsDryRun()
	if fits {
		r.held = n
	} else if r.ok {
		r.delay = 0
	}
	return r, nil
}

// OK tells whether the units are the caller's, after Delay.
func (r *Reservation) OK() bool { return r != nil && r.ok }

// Delay returns how long after the call of Reserve the units may be used; it
// does not count down. If there are none: the shortest time after which asking
// again may help, or [limit.Never].
func (r *Reservation) Delay() time.Duration {
	if r == nil || !r.ok && r.delay == 0 {
		return limit.Never
	}
	return r.delay
}

// Cancel hands the units back, for what will not happen: once, however often it
// is called and by however many goroutines at a time; the others return nil at
// once. Like every call of this package it is executed once at most: with an
// error it is unknown whether they were handed back, and asking again does
// nothing. If ctx is over already nothing is asked, and Cancel may be tried
// again. A reservation that is nil or not OK holds nothing. If units came back the nodes of
// package hybrid hear of it, see [Limiter.Set].
//
// Until Delay has passed all of them come back, unless others have booked behind.
// Those keep their times, so that newcomers would be admitted at these times once
// more: while the leaky bucket is fuller than full, only what was booked last comes back.
// Of a leaky bucket's units that could have been used since, only those come back that
// have not leaked: the others have made room for somebody else. Units of a window
// that is over, or from before a reset, count no longer.
//
// Redis does not know which reservations are cancelled. If several are, at
// different times after their delays, each hands back up to as much as has leaked
// meanwhile of those that were cancelled before it and booked before it.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r == nil || r.held == 0 || r.spent.Load() {
		return nil
	}
	if ctx != nil && ctx.Err() != nil {
		return wrap(ctx.Err())
	}
	if !r.spent.CompareAndSwap(false, true) {
		return nil
	}
	_, err := r.l.refund(ctx, r.key, r.rule, r.held, &r.of)
	return err
}
