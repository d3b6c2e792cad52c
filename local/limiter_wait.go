package local

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/waitqueue"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Reserve is [Limiter.ReserveN] of one unit.
func (l *Limiter) Reserve(key string, rule *limit.Rule) limit.Reservation {
	return l.ReserveN(key, rule, 1)
}

// ReserveN takes n units of key under rule now, for a caller who is willing to
// wait until they may be used: see [limit.Reservation.Delay]. It never waits itself.
//
// Only a token bucket can be reserved ahead: it then owes units, and all later
// callers come after. Windows and logs record only what has happened: there a
// reservation is OK only if its delay is 0. [Limiter.WaitN] works with all rules. No
// reservation is OK for more units than the limit, for more than 100 years
// ahead, or if the question cannot be asked. A dry run is always OK and has no delay.
func (l *Limiter) ReserveN(key string, rule *limit.Rule, n int64) limit.Reservation {
	if !l.askable(rule, n) {
		return decision.NotReserved(decision.Invalid(rule))
	}
	if !rule.IsDryRun() {
		return l.reserve(key, rule, n, counter.Terms{MaxDelay: int64(arith.MaxWindow)})
	}
	v := l.reserve(key, rule, n, counter.Terms{MaxDelay: -1})
	if !v.OK() { // nothing was booked, and the caller need not wait
		res := decision.Judged(rule, v.Result())
		res.RetryAfter = 0
		return decision.Reserved(res, nil)
	}
	return v
}

func (l *Limiter) reserve(key string, rule *limit.Rule, n int64, terms counter.Terms) limit.Reservation {
	res, booked := l.table.Reserve(key, rule, n, int64(l.clock.Now()), terms)
	if booked == nil {
		return decision.NotReserved(res)
	}
	return decision.Reserved(res, func() {
		l.table.Cancel(key, rule, int64(l.clock.Now()), booked)
	})
}

// Wait is [Limiter.WaitN] for one unit.
func (l *Limiter) Wait(ctx context.Context, key string, rule *limit.Rule) error {
	return l.WaitN(ctx, key, rule, 1)
}

// WaitN blocks until n units of key are admitted under rule, and consumes them. Waiters for one key are
// served in the order of arrival, and before callers who do not wait.
//
// If that takes longer than ctx lasts, as far as is known, or n is above the limit, WaitN returns a
// [*limit.WaitError] at once. Other errors: that of ctx if it ends first, [limit.ErrClosed],
// [limit.ErrInvalidN], and [limit.ErrNilRule]. With an error nothing is consumed. 0 units and a dry run
// do not wait. It sleeps on the system's timers: with another clock it is early or late by the difference.
func (l *Limiter) WaitN(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	if !l.askable(rule, n) && !l.combined(rule, n) {
		return fmt.Errorf("local: wait: %w", cmp.Or(decision.Askable(rule, n), limit.ErrClosed))
	}
	ctx = decision.Given(ctx)
	if n == 0 || rule.IsDryRun() {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.AllowN(key, rule, n)
		return nil
	}
	if rule.Parts() != nil {
		return l.waitForParts(ctx, key, rule, n)
	}
	return l.queues.Wait(ctx, key, rule, n, waitqueue.Limiter{
		Reserve:  func(t counter.Terms) limit.Reservation { return l.reserve(key, rule, n, t) },
		Estimate: func(ahead, n int64) int64 { return l.table.Estimate(key, rule, ahead, n, int64(l.clock.Now())) },
		Unclaim:  func() { l.table.Unclaim(key, rule, int64(l.clock.Now())) },
	})
}
