package remote

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// minPause is the shortest sleep between two tries for a window's units.
const minPause = time.Millisecond

// Wait is [Limiter.WaitN] for one unit.
func (l *Limiter) Wait(ctx context.Context, key string, rule *limit.Rule) error {
	return l.WaitN(ctx, key, rule, 1)
}

// WaitN returns nil as soon as n units of key are admitted, and consumes them. If that takes longer than
// ctx lasts, or for ever, it returns a [*limit.WaitError] at once. If ctx ends first, booked units are
// refunded, and the error is that of ctx, joined with one of booking or refunding: then it is unknown
// whether the units still count. For that WaitN may take [Options.CommandTimeout] longer than ctx.
//
// Callers who wait for a token bucket are served in the order in which Redis received their calls, from
// any process. For a window or a log a caller asks again when there should be room: small requests may
// overtake a large one again and again. 0 units and dry runs do not wait. The other errors are those of
// [Limiter.Take].
func (l *Limiter) WaitN(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	ctx = decision.Given(ctx)
	if err := cmp.Or(decision.Askable(rule, n), ctx.Err()); err != nil {
		return redisstore.Wrap(err)
	}
	switch {
	case n == 0:
		return nil
	case rule.IsDryRun():
		_, err := l.Take(ctx, key, rule, n)
		return err
	case n > rule.Limit():
		return &limit.WaitError{Key: key, Rule: rule, Need: limit.Never}
	case arith.Of(rule).Algorithm == arith.TokenBucket:
		return l.waitInLine(ctx, key, rule, n)
	}
	return l.waitForRoom(ctx, key, rule, n)
}

// waitInLine books units ahead and waits until they may be used.
func (l *Limiter) waitInLine(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	// The answer to the booking, and the refund, are needed even if ctx ends. These
	// commands have a deadline of their own.
	lasting := context.WithoutCancel(ctx)
	r, err := l.reserve(lasting, key, rule, n, decision.TimeLeft(ctx))
	if err != nil {
		return errors.Join(redisstore.Wrap(ctx.Err()), err)
	}
	if !r.OK() {
		return &limit.WaitError{Key: key, Rule: rule, Need: r.Delay()}
	}
	if err := decision.Pause(ctx, r.Delay()); err != nil {
		return errors.Join(redisstore.Wrap(err), r.Cancel(lasting))
	}
	return nil
}

// waitForRoom asks again until the units are admitted.
func (l *Limiter) waitForRoom(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	for {
		res, err := l.Take(ctx, key, rule, n)
		if err != nil || res.Allowed {
			return err
		}
		if res.RetryAfter > decision.TimeLeft(ctx) {
			return &limit.WaitError{Key: key, Rule: rule, Need: res.RetryAfter}
		}
		if err := decision.Pause(ctx, max(res.RetryAfter, minPause)); err != nil {
			return redisstore.Wrap(err)
		}
	}
}
