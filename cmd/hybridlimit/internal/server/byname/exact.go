package byname

import (
	"context"
	"errors"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// exactLimiter is a limiter that lets Redis decide, as *hybrid.Limiter. Without this method exact
// rules are decided as all others.
type exactLimiter interface {
	TakeExact(ctx context.Context, checks ...limit.Check) (limit.AllResult, error)
}

// UndecidedError says that Redis was to decide a check by an exact rule, and has not: the units may
// have been taken or not. Its text is for clients.
type UndecidedError struct{ Err error }

func (e *UndecidedError) Error() string {
	return "the limit is exact, and Redis has not decided" + e.reason() + ": the units may have been taken"
}

// Unwrap returns the error of the limiter.
func (e *UndecidedError) Unwrap() error { return e.Err }

// reason is in a word or two why. Addresses and keys are not for clients.
func (e *UndecidedError) reason() string {
	var away *hybrid.UnavailableError
	var broken *limit.KeyError
	switch {
	case errors.As(e.Err, &away):
		return " (" + away.Reason + ")"
	case errors.As(e.Err, &broken):
		return " (the key is broken)"
	case errors.Is(e.Err, limit.ErrClosed):
		return " (the server stops)"
	case errors.Is(e.Err, context.DeadlineExceeded), errors.Is(e.Err, context.Canceled):
		return " (the request has ended)"
	}
	return ""
}

// TakeBy takes n units of a key, by Redis' decision if the rule is exact. None at all only look. The
// error is an [*UndecidedError]; a dry run has none, for it refuses nothing.
func (d Decider) TakeBy(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	if n == 0 {
		d.Look(key, rule)
	}
	lim, ok := d.Limiter.(exactLimiter)
	if !ok || n == 0 || !rule.IsExact() {
		return d.Limiter.Take(key, rule, n), nil
	}
	v, err := lim.TakeExact(ctx, limit.Check{Key: key, Rule: rule, N: n})
	res := v.Result
	switch {
	case err == nil || res.Source == limit.SourceInvalid:
		return res, nil
	case rule.IsDryRun():
		return d.Limiter.Peek(key, rule), nil
	}
	return res, &UndecidedError{err}
}

// TakeAll takes the units of all checks or none, by Redis' decision if one of the rules is exact. The
// error is an [*UndecidedError], unless all rules are dry runs; or it wraps [limit.ErrUnsupported],
// because on a Cluster the keys are in several shards.
func TakeAll(ctx context.Context, lim interface {
	TakeAll(checks ...limit.Check) limit.AllResult
}, checks ...limit.Check) (limit.AllResult, error) {
	exact, ok := lim.(exactLimiter)
	if !ok || !anyOf(checks, (*limit.Rule).IsExact) {
		return lim.TakeAll(checks...), nil
	}
	v, err := exact.TakeExact(ctx, checks...)
	if err == nil || errors.Is(err, limit.ErrUnsupported) {
		return v, err
	}
	return v, &UndecidedError{err}
}

// anyOf reports whether something holds for one of the rules.
func anyOf(checks []limit.Check, holds func(*limit.Rule) bool) bool {
	for i := range checks {
		if holds(checks[i].Rule) {
			return true
		}
	}
	return false
}
