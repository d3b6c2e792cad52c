package hybrid

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Reservation is what [Limiter.Reserve] returns: OK, Delay, Result and Cancel.
type Reservation = limit.Reservation

// Reserve takes n units of key now, for a caller who is willing to wait until
// they may be used: see [limit.Reservation.Delay]. It never waits itself.
//
// Only a funnel can be reserved ahead: it is then fuller than full, for the
// whole fleet as soon as Redis has been told, and everybody else comes after.
// Two nodes that reserve within one sync interval may get the same time, as with
// any check. A window holds what has happened and has no place for what is still
// to come: there a reservation is OK only if its delay is 0; [Limiter.Wait] works
// with both. No reservation is OK for more units than the limit, for more than
// [limit.MaxWindow] ahead, during an outage with [FailClosed], or if
// [Limiter.Take] would refuse without looking. A dry run is always OK and has no
// delay.
//
// Cancel hands those of the units back that still count, as [Limiter.Refund]
// does: none, if this node has reset or set the key since. Those who have booked
// behind keep their times, so that newcomers would be admitted at these times once
// more: then nothing comes back until they have given up, too, or ever if they are
// on another node.
func (l *Limiter) Reserve(key string, rule *limit.Rule, n int64) Reservation {
	if !l.usable(rule, n) {
		return limit.NewReservation(false, l.invalid(key, rule, n), nil)
	}
	terms := table.Terms{MaxDelay: int64(limit.MaxWindow)}
	if rule.IsDryRun() {
		terms.MaxDelay = -1
	}
	v := l.reserve(key, rule, n, terms)
	switch {
	case v.OK():
	case rule.IsDryRun(): // nothing was booked, and nobody need wait
		l.tally.pass()
		res := rule.Judged(v.Result())
		res.RetryAfter = 0
		return limit.NewReservation(true, res, nil)
	default:
		l.tally.count(n, false, v.Result().Source)
	}
	return v
}

// reserve counts as a decision only what it books: who waits asks again.
func (l *Limiter) reserve(key string, rule *limit.Rule, n int64, terms table.Terms) Reservation {
	res, booked := l.table.Reserve(key, rule, n, l.now(), terms)
	if booked != nil {
		l.tally.count(n, true, res.Source)
	}
	return limit.NewReservation(booked != nil, res, func() {
		l.stats.refunded.Add(l.table.Cancel(key, rule, l.now(), booked))
	})
}

// Wait blocks until n units of key are admitted, and consumes them. Who waits
// for a key on this node is served in the order of arrival, and before other
// callers here who keep asking. Across nodes the units of a funnel are booked
// ahead, so that nobody starves; those of a window are not, so that who waits for
// many of them may be overtaken by other nodes that take few at a time.
//
// If the units cannot be had before ctx ends, as far as this node knows, Wait
// returns a [*limit.WaitError] at once, which says how long it would have
// taken; for more units than the limit holds, too. If ctx ends, or the limiter
// is closed, while it waits, it returns ctx's error or [limit.ErrClosed]. With an
// error nothing is consumed: what had been booked is handed back, once.
//
// Other errors: [limit.ErrInvalidN] for n < 0, what [Limiter.CheckRule] says of
// the rule, [limit.ErrClosed] from a nil or zero Limiter. A nil ctx never ends.
// No units, and a dry run, are not waited for. A closed limiter admits at once or
// not at all.
//
// It sleeps on the system's timers: for a limiter with another clock it may
// return early or late by what the two differ.
func (l *Limiter) Wait(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	if err := l.why(rule, n); err != nil {
		l.invalid(key, rule, n)
		return fmt.Errorf("hybrid: wait: %w", err)
	}
	ctx = orBackground(ctx)
	if n == 0 || rule.IsDryRun() {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.AllowN(key, rule, n)
		return nil
	}
	return l.lines.Wait(ctx, key, rule, n, table.Asker{
		Reserve:  func(t table.Terms) Reservation { return l.reserve(key, rule, n, t) },
		Estimate: func(ahead, n int64) int64 { return l.table.Estimate(key, rule, ahead, n, l.now()) },
		Unclaim:  func() { l.table.Unclaim(key, rule, l.now()) },
		Patience: l.patience,
	})
}

// why returns what is wrong with a question, nil if it can be asked.
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
