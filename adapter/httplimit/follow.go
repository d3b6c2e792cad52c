package httplimit

import (
	"context"
	"math/bits"
	"net/http"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/limit"
)

// follower tells a limiter what an upstream says.
type follower struct {
	lim   limit.ContextLimiter
	rule  *limit.Rule // a bucket
	max   time.Duration
	clock clock.Clock
	wait  time.Duration // for the limiter
}

// maxSet is how long a limiter may take to be told what the upstream says: the response waits
// for it.
const maxSet = time.Second

// follow tells the limiter what the upstream says. The request was sent at the given time.
func (f *follower) follow(ctx context.Context, key string, resp *http.Response, began time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	now, refused := f.clock.Now(), resp.StatusCode == http.StatusTooManyRequests
	wall := now + clocks.Ahead(f.clock)
	if refused || resp.StatusCode == http.StatusForbidden || resp.StatusCode >= 500 {
		if wait, ok := retryAfter(resp.Header, wall); ok && wait > 0 {
			return f.hold(ctx, key, wait)
		}
	}
	left, window, ok := upstreamLeft(resp.Header, wall)
	switch {
	case ok && left == 0 && window > 0:
		return f.hold(ctx, key, window)
	case refused:
		return f.lower(ctx, key, 0, 0) // it does not say for how long
	case ok:
		return f.lower(ctx, key, left, now-began)
	}
	return nil
}

// hold lets no request pass for a time: it fills the bucket so far that the next unit fits
// after it.
func (f *follower) hold(ctx context.Context, key string, wait time.Duration) error {
	wait = min(wait, f.max)
	if wait <= 0 {
		return nil
	}
	if res, err := f.lim.Peek(ctx, key, f.rule); err != nil || !res.Allowed && res.RetryAfter >= wait {
		return err
	}
	return f.lim.Set(ctx, key, f.rule, min(f.rule.Limit()-1+f.leaks(wait), arith.MaxUnits))
}

// lower takes units away, if the limiter believes that more are left than the upstream does.
// What has come back since the request was sent is no difference.
func (f *follower) lower(ctx context.Context, key string, left int64, took time.Duration) error {
	left = min(left, f.rule.Limit())
	res, err := f.lim.Peek(ctx, key, f.rule)
	if err != nil || res.Remaining <= left+f.leaks(max(took, 0)) {
		return err
	}
	return f.lim.Set(ctx, key, f.rule, f.rule.Limit()-left)
}

// leaks returns how many units the bucket gets back in a time, rounded up, at most 1<<53.
func (f *follower) leaks(in time.Duration) int64 {
	period := uint64(f.rule.Period())
	hi, lo := bits.Mul64(uint64(in), uint64(arith.Of(f.rule).Units))
	lo, carry := bits.Add64(lo, period-1, 0)
	if hi += carry; hi >= period {
		return arith.MaxUnits
	}
	n, _ := bits.Div64(hi, lo, period)
	return int64(min(n, arith.MaxUnits))
}
