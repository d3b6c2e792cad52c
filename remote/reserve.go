package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Reserve is [Limiter.ReserveN] of one unit.
func (l *Limiter) Reserve(ctx context.Context, key string, rule *limit.Rule) (limit.Reservation, error) {
	return l.ReserveN(ctx, key, rule, 1)
}

// ReserveN takes n units of key that may be used later. Only a token bucket can be booked ahead: its units
// queue, and count in Redis at once. OK is false, and nothing is consumed, for more units than the limit
// and for a delay of more than 100 years. With a window or a log OK is false unless the units are admitted
// now. A dry run is always OK and never delayed.
//
// Cancel refunds all units until Delay has passed, unless others have booked behind: they keep their times.
// After Delay only units are refunded that the bucket has not got back meanwhile; of several reservations
// that are cancelled late, each may refund what belongs to those before it. Units from before a reset no
// longer count.
//
// The errors are those of [Limiter.Take]; with an error the reservation is not OK.
func (l *Limiter) ReserveN(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Reservation, error) {
	return l.reserve(ctx, key, rule, n, arith.MaxWindow)
}

// reserve is ReserveN with a longest delay: units that would have to wait for more
// than most are not booked.
func (l *Limiter) reserve(ctx context.Context, key string, rule *limit.Rule, n int64, most time.Duration) (limit.Reservation, error) {
	if err := decision.Askable(rule, n); err != nil {
		return decision.NotReserved(decision.Invalid(rule)), redisstore.Wrap(err)
	}
	if rule.Parts() != nil {
		return decision.NotReserved(decision.Invalid(rule)), fmt.Errorf("remote: %w: %v cannot be reserved: reserve each of its rules", limit.ErrUnsupported, rule)
	}
	a := l.store.SumUp(redisstore.Book, []limit.Check{{Key: key, Rule: rule, N: n}})
	if !rule.IsDryRun() {
		a.Asks[0].Ahead = min(most, arith.MaxWindow)
		if a.Mode == redisstore.Book && arith.Of(rule).Algorithm == arith.TokenBucket {
			a.Mode = redisstore.Ahead
		}
	}
	t, _, err := l.store.Take(ctx, a.Mode, a.Asks...)
	if err != nil {
		return decision.NotReserved(decision.Failed(rule)), err
	}
	fits, answer := a.Fits(&t, 0), &t.Answers[0]
	res := answer.Result(n)
	if arith.Of(rule).Algorithm == arith.TokenBucket && n <= rule.Limit() {
		is, level := arith.Of(rule), answer.Level
		if !fits {
			level = is.Add(level, is.Cost(n))
		}
		res.RetryAfter = is.Sub(level, is.Full).Ceil()
		res.Allowed = fits && res.RetryAfter == 0
	}
	switch {
	case fits:
		of := redisstore.Booking{At: t.Now, Level: answer.Level}
		return decision.ReservedRemotely(res, func(ctx context.Context) error {
			_, err := l.refund(ctx, key, rule, n, &of)
			return err
		}), nil
	case rule.IsDryRun():
		res = decision.Judged(rule, res)
		res.RetryAfter = 0
		return decision.Reserved(res, nil), nil
	}
	return decision.NotReserved(res), nil
}
