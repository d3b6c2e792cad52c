package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// minPause is the shortest sleep of somebody who waits for a window's units.
const minPause = time.Millisecond

// Wait is Wait of package remote.
func (l *Limiter) Wait(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	ctx = given(ctx)
	if err := askable(rule, n); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return wrap(err)
	}
	switch {
	case n == 0:
		return nil
	case rule.IsDryRun():
		_, err := l.Take(ctx, key, rule, n)
		return err
	case n > rule.Limit():
		return &limit.WaitError{Key: key, Rule: rule, N: n, Need: limit.Never, Left: remaining(ctx)}
	case rule.Algorithm() == limit.AlgorithmFunnel:
		return l.waitInLine(ctx, key, rule, n)
	}
	return l.waitForRoom(ctx, key, rule, n)
}

// waitInLine waits for units that are booked ahead.
func (l *Limiter) waitInLine(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	left := remaining(ctx)
	// The end of ctx must keep the units neither from being known nor from being
	// handed back. The commands have a deadline of their own.
	lasting := context.WithoutCancel(ctx)
	r, err := l.reserve(lasting, key, rule, n, left)
	if err != nil {
		return errors.Join(wrap(ctx.Err()), err)
	}
	if !r.OK() {
		return &limit.WaitError{Key: key, Rule: rule, N: n, Need: r.Delay(), Left: left}
	}
	if err := pause(ctx, r.Delay()); err != nil {
		return errors.Join(wrap(err), r.Cancel(lasting))
	}
	return nil
}

// waitForRoom asks again until it is admitted.
func (l *Limiter) waitForRoom(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	for {
		res, err := l.Take(ctx, key, rule, n)
		if err != nil || res.Allowed {
			return err
		}
		if left := remaining(ctx); res.RetryAfter > left {
			return &limit.WaitError{Key: key, Rule: rule, N: n, Need: res.RetryAfter, Left: left}
		}
		if err := pause(ctx, max(res.RetryAfter, minPause)); err != nil {
			return wrap(err)
		}
	}
}

// remaining returns how long ctx lasts; for ever if it has no deadline.
func remaining(ctx context.Context) time.Duration {
	at, bounded := ctx.Deadline()
	if !bounded {
		return limit.Never
	}
	return max(clock.Until(at), 0)
}

// pause sleeps for d, or until ctx ends, and returns its error if it has.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
