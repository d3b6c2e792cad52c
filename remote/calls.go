package remote

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeAtMost takes what is left of key under rule, up to n units, and returns
// how many those are. Allowed tells whether it was any; if not, RetryAfter is
// when there will be one. 0 units only look.
//
// A dry run grants n in any case: it takes all of them or, where so many are
// not left, none.
//
// The errors are those of [Limiter.Take].
func (l *Limiter) TakeAtMost(ctx context.Context, key string, rule *limit.Rule, n int64) (granted int64, res limit.Result, err error) {
	if rule.IsDryRun() {
		if res, err = l.Take(ctx, key, rule, n); err == nil {
			granted = n
		}
		return granted, res, err
	}
	most := n
	if rule.Valid() {
		most = min(n, rule.Limit())
	}
	if !rule.Valid() || most <= 0 {
		res, err = l.Take(ctx, key, rule, min(n, 1))
		return 0, res, err
	}
	s, args := mostCall(rule, most)
	if s == nil {
		return 0, limit.Invalid(rule), fmt.Errorf("remote: %w: %v", limit.ErrUnsupported, rule)
	}
	r := l.run(ctx, s, l.srv.keys.CounterKey(rule, key), args...)
	allowed := r.flag()
	tell := r.counter(rule)
	granted = r.number(most)
	if err := r.end(); err != nil {
		return 0, failed(rule), err
	}
	return granted, tell(allowed, 1), nil
}

// mostCall returns the script that takes what is left, and its arguments.
func mostCall(rule *limit.Rule, most int64) (*script, []any) {
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		step := int64(1) << (bits.Len64(uint64(most)) - 1)
		args := funnelArgs(rule, step, rule.Full())
		for step /= 2; step > 0; step /= 2 {
			cost := toWire(rule, rule.Cost(step))
			args = append(args, cost.us, cost.rem)
		}
		return scriptTakeFunnel, append(args, most)
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		return scriptTakeWindow, []any{most, rule.Limit(), widthUS(rule), rule.Kept(), horizonMS(rule), "1"}
	case limit.AlgorithmSlidingLog:
		return scriptTakeLog, []any{most, rule.Limit(), widthUS(rule), "1", "1"}
	}
	return nil, nil
}

// Refund hands n units of key back, because the call that they were taken for
// did not happen: as far as so many are there, the newest first. It returns how
// many. Those in the oldest bucket of a sliding window are handed back whole,
// although no more than a part of each counts by then: more may come back than
// Remaining grows by. Like every call of this package it is executed once at most: with an
// error it is unknown whether they were handed back.
//
// Of a funnel that is fuller than full nothing is handed back: somebody may have
// booked ahead, and keeps his time, so that newcomers would be admitted at that
// time once more.
//
// It begins a new generation of the key, so that nodes that hold a view of it
// (package hybrid) do not take the difference for a loss of data.
//
// The errors are those of [Limiter.Take].
func (l *Limiter) Refund(ctx context.Context, key string, rule *limit.Rule, n int64) (back int64, err error) {
	return l.refund(ctx, key, rule, n)
}

// refund is Refund; at is when the units were booked, as refund.lua has it, if
// that matters.
func (l *Limiter) refund(ctx context.Context, key string, rule *limit.Rule, n int64, at ...any) (back int64, err error) {
	args, err := setArgs(rule, n)
	if err != nil || n == 0 {
		return 0, err
	}
	full := toWire(rule, rule.Full())
	args = append(append(args, full.us, full.rem), at...)
	r := l.run(ctx, scriptRefund, l.srv.keys.CounterKey(rule, key), args...)
	r.done("a refund")
	if rule.Algorithm() == limit.AlgorithmFunnel {
		level := r.span(rule)
		held := rule.Whole(level)
		if rule.Cost(held).Less(level) {
			held++
		}
		return min(n, held), r.end()
	}
	return min(n, r.number(limit.MaxUnits)), r.end()
}

// Reset forgets what has been used of key under rule. It is [Limiter.Set] to 0.
func (l *Limiter) Reset(ctx context.Context, key string, rule *limit.Rule) error {
	return l.Set(ctx, key, rule, 0)
}

// Set makes used units of key count, whatever was counted before: what an
// upstream service says, for example. More than the limit is a debt; a sliding
// log holds no more than its limit. It raises the key's generation, so that
// nodes that still hold an older view of it (package hybrid) drop that view
// instead of restoring it.
//
// The errors are those of [Limiter.Take]. An unusable key is not repaired.
func (l *Limiter) Set(ctx context.Context, key string, rule *limit.Rule, used int64) error {
	_, err := l.renew(ctx, key, rule, used)
	return err
}

// Renewed is a counter that has been reset or set.
type Renewed struct {
	// Now is Redis' time at which that was done, since the Unix epoch.
	Now time.Duration
	// State is the counter since then.
	State State
}

// Renew is [Limiter.Set], for those who hold views of the counter.
func (s *Store) Renew(ctx context.Context, key string, rule *limit.Rule, used int64) (Renewed, error) {
	return (&Limiter{srv: s.srv}).renew(ctx, key, rule, used)
}

func (l *Limiter) renew(ctx context.Context, key string, rule *limit.Rule, used int64) (out Renewed, err error) {
	args, err := setArgs(rule, used)
	if err != nil {
		return out, err
	}
	r := l.run(ctx, scriptRenew, l.srv.keys.CounterKey(rule, key), args...)
	r.done("a reset")
	out.Now, out.State.Gen = r.now(), r.number(maxExact)
	out.State.Born = int64(out.Now / time.Microsecond)
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		out.State.Level = r.span(rule)
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		out.State.Buckets = r.buckets(rule)
	}
	return out, r.end()
}

// setArgs are the arguments of the scripts that lower or set a counter: what
// kind it is, and the units.
func setArgs(rule *limit.Rule, units int64) ([]any, error) {
	switch {
	case !rule.Valid():
		return nil, fmt.Errorf("remote: %w", limit.ErrNilRule)
	case units < 0:
		return nil, fmt.Errorf("remote: %w: %d", limit.ErrInvalidN, units)
	}
	units = min(units, limit.MaxUnits)
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		cost := toWire(rule, rule.Cost(units))
		return []any{"f", rateText(rule), 0, horizonMS(rule), cost.us, cost.rem}, nil
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		return []any{"w", widthUS(rule), rule.Kept(), horizonMS(rule), units, 0}, nil
	case limit.AlgorithmSlidingLog:
		return []any{"l", widthUS(rule), 0, horizonMS(rule), min(units, rule.Limit()), 0}, nil
	}
	return nil, fmt.Errorf("remote: %w: %v", limit.ErrUnsupported, rule)
}
