package httplimit

import (
	"context"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Waiter is what a [Transport] needs of a limiter. Those of packages hybrid and local have
// it, and Set besides, which a Transport needs to follow the upstream.
type Waiter interface {
	// Take admits n units of key, all or none.
	Take(key string, rule *limit.Rule, n int64) limit.Result
	// Peek tells what Take of one unit would answer.
	Peek(key string, rule *limit.Rule) limit.Result
	// Wait blocks until n units of key are admitted, or returns an error.
	Wait(ctx context.Context, key string, rule *limit.Rule, n int64) error
}

// maxMaxFollow is the largest MaxFollow.
const maxMaxFollow = 24 * time.Hour

// setFunc is Set of a limiter.
type setFunc = func(ctx context.Context, key string, rule *limit.Rule, used int64) error

// setOf returns Set of a limiter: that of package local does not wait, and has no context.
func setOf(lim any) setFunc {
	switch s := lim.(type) {
	case interface {
		Set(ctx context.Context, key string, rule *limit.Rule, used int64) error
	}:
		return s.Set
	case interface {
		Set(key string, rule *limit.Rule, used int64) error
	}:
		return func(_ context.Context, key string, rule *limit.Rule, used int64) error { return s.Set(key, rule, used) }
	}
	return nil
}

// follower tells a limiter what an upstream says.
type follower struct {
	lim   Waiter
	set   setFunc
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
	now := f.clock.Now()
	refused := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable
	if wait, ok := retryAfter(resp.Header, now); refused && ok {
		return f.hold(ctx, key, wait)
	}
	left, window, ok := upstreamLeft(resp.Header)
	switch {
	case ok && left == 0 && window > 0:
		return f.hold(ctx, key, window)
	case ok:
		return f.lower(ctx, key, left, now-began)
	case resp.StatusCode == http.StatusTooManyRequests:
		return f.lower(ctx, key, 0, 0) // it does not say for how long
	}
	return nil
}

// hold lets no request pass for a time: it fills the bucket so far that the next unit fits
// after it.
func (f *follower) hold(ctx context.Context, key string, wait time.Duration) error {
	wait = min(wait, f.max)
	if res := f.lim.Peek(key, f.rule); wait <= 0 || !res.Allowed && res.RetryAfter >= wait {
		return nil
	}
	return f.set(ctx, key, f.rule, min(f.rule.Limit()-1+f.leaks(wait), limit.MaxUnits))
}

// lower takes units away, if the limiter believes that more are left than the upstream does.
// What has come back since the request was sent is no difference.
func (f *follower) lower(ctx context.Context, key string, left int64, took time.Duration) error {
	left = min(left, f.rule.Limit())
	if f.lim.Peek(key, f.rule).Remaining <= left+f.leaks(max(took, 0)) {
		return nil
	}
	return f.set(ctx, key, f.rule, f.rule.Limit()-left)
}

// leaks returns how many units the bucket leaks in a time, rounded up, at most
// [limit.MaxUnits].
func (f *follower) leaks(in time.Duration) int64 {
	period := uint64(f.rule.Period())
	hi, lo := bits.Mul64(uint64(in), uint64(f.rule.Units()))
	lo, carry := bits.Add64(lo, period-1, 0)
	if hi += carry; hi >= period {
		return limit.MaxUnits
	}
	n, _ := bits.Div64(hi, lo, period)
	return int64(min(n, limit.MaxUnits))
}

// retryAfter returns what Retry-After asks for: seconds, or the time from the response's own
// Date until another, so that it does not matter whether our clock is right. More seconds
// than a number holds are many. A time that has passed is 0.
func retryAfter(h http.Header, now time.Duration) (wait time.Duration, ok bool) {
	text := trimOWS(h.Get(fieldRetryAfter))
	if text == "" {
		return 0, false
	}
	if all(text, isDigit) {
		s, err := strconv.ParseInt(text, 10, 64)
		if err != nil || s > int64(maxMaxFollow/time.Second) {
			return maxMaxFollow, true
		}
		return time.Duration(s) * time.Second, true
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	from, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		from = time.Unix(0, int64(now))
	}
	return max(until.Sub(from), 0), true
}

// upstreamLeft returns what the fields RateLimit and RateLimit-Policy say is left, for how
// long no more than that can be used, and whether they say so. Of several policies the one
// counts that allows the least. Policies that do not count requests say nothing, nor does a
// response from a cache.
func upstreamLeft(h http.Header) (left int64, window time.Duration, ok bool) {
	if len(h[fieldRateLimit]) == 0 || !isFresh(h) {
		return 0, 0, false
	}
	items, valid := parseList(strings.Join(h[fieldRateLimit], ", "))
	if !valid {
		return 0, 0, false
	}
	others := otherUnits(h)
	for _, item := range items {
		r, counts := item.integer("r")
		if !counts || r < 0 || others[item.name] {
			continue
		}
		t, _ := item.integer("t")
		w := time.Duration(min(max(t, 0), int64(maxMaxFollow/time.Second))) * time.Second
		if !ok || r < left || r == left && w > window {
			left, window, ok = r, w, true
		}
	}
	return left, window, ok
}

func isFresh(h http.Header) bool {
	age := trimOWS(h.Get("Age"))
	return strings.Trim(age, "0") == ""
}

// otherUnits returns the policies that do not count requests.
func otherUnits(h http.Header) map[string]bool {
	items, valid := parseList(strings.Join(h[fieldPolicy], ", "))
	if !valid {
		return nil
	}
	var names map[string]bool
	for _, item := range items {
		if unit, found := item.text("qu"); found && unit != "requests" && unit != "request" {
			if names == nil {
				names = map[string]bool{}
			}
			names[item.name] = true
		}
	}
	return names
}
