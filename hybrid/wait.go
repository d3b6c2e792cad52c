package hybrid

import (
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

// ReserveN takes n units of key now, for a caller who is willing to wait until they may be used: see
// [limit.Reservation]. ReserveN itself never waits, and is counted only if it reserves. Only a token
// bucket can be reserved ahead of time: other callers then come after it, on all nodes as soon as it is
// reported. Two nodes that reserve within one SyncInterval may get the same time. With a window a
// reservation is OK only if its delay is 0; [Limiter.WaitN] works with both.
//
// A reservation is not OK for more units than the limit, for a delay of more than 100 years, during an
// outage with [FailClosed], or if the check is invalid. A dry run is always OK and has no delay. Cancel
// gives nothing back if this node has reset or set the key since, nor until those who have reserved later
// have cancelled too, nor if they are on another node.
func (l *Limiter) ReserveN(key string, rule *limit.Rule, n int64) limit.Reservation {
	if !l.usable(rule, n) { // a combined rule cannot be reserved ahead
		return decision.NotReserved(l.invalid(key, rule, n))
	}
	terms := counter.Terms{MaxDelay: int64(arith.MaxWindow)}
	if rule.IsDryRun() {
		terms.MaxDelay = -1
	}
	v := l.reserve(key, rule, n, terms)
	switch {
	case v.OK():
	case rule.IsDryRun(): // nothing was reserved, and the caller need not wait
		l.tally.Of(rule).Pass()
		res := decision.Judged(rule, v.Result())
		res.RetryAfter = 0
		return decision.Reserved(res, nil)
	default:
		l.tally.Of(rule).Count(n, false, v.Result().Source)
	}
	return v
}

// reserve counts a decision only if units are reserved: a waiter calls it several times.
func (l *Limiter) reserve(key string, rule *limit.Rule, n int64, terms counter.Terms) limit.Reservation {
	res, booked := l.table.Reserve(key, rule, n, l.now(), terms)
	if booked == nil {
		return decision.NotReserved(res)
	}
	l.tally.Of(rule).Count(n, true, res.Source)
	return decision.Reserved(res, func() {
		l.stats.Cancelled.Add(n)
		l.returned(n, l.table.Cancel(key, rule, l.now(), booked))
	})
}

// Wait is [Limiter.WaitN] for one unit.
func (l *Limiter) Wait(ctx context.Context, key string, rule *limit.Rule) error {
	return l.WaitN(ctx, key, rule, 1)
}

// WaitN blocks until n units of key are admitted, and consumes them. The waiters for a key on this node
// are served in the order of their calls, and before callers on this node who only check. Units of a
// token bucket are reserved across all nodes. Units of a window are not: other nodes that take few units
// at a time may overtake a waiter for many.
//
// If that takes longer than ctx lasts, as far as this node knows, or n is above the limit, WaitN returns
// a [*limit.WaitError] at once. Other errors: that of ctx if it ends first, [limit.ErrClosed],
// [limit.ErrInvalidN], and that of [Limiter.CheckRule]. With an error nothing is consumed. 0 units and a
// dry run do not wait. WaitN sleeps on the system's timers: with another clock in [Options] it is early
// or late by the difference.
func (l *Limiter) WaitN(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	if err := l.why(rule, n); err != nil {
		l.invalid(key, rule, n)
		return fmt.Errorf("hybrid: wait: %w", err)
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
		Estimate: func(ahead, n int64) int64 { return l.table.Estimate(key, rule, ahead, n, l.now()) },
		Unclaim:  func() { l.table.Unclaim(key, rule, l.now()) },
		Patience: l.patience,
	})
}

// why returns the error of a check that is invalid, nil if it is valid.
func (l *Limiter) why(rule *limit.Rule, n int64) error {
	if err := l.CheckRule(rule); err != nil {
		return err
	}
	switch {
	case n < 0:
		return fmt.Errorf("%w: %d", limit.ErrInvalidN, n)
	case l == nil || l.table == nil:
		return limit.ErrClosed
	}
	return nil
}
