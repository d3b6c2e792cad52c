package redisstore

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeAtMost is TakeAtMost of package remote.
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
		return 0, decision.Invalid(rule), fmt.Errorf("remote: %w: %v", limit.ErrUnsupported, rule)
	}
	r := l.run(ctx, s, l.srv.keys.CounterKey(rule, key), args...)
	allowed := r.flag()
	tell := r.content(rule).tell
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
		args := funnelArgs(rule, step, arithOf(rule).Full)
		for step /= 2; step > 0; step /= 2 {
			cost := toWire(rule, arithOf(rule).Cost(step))
			args = append(args, cost.us, cost.rem)
		}
		return scriptTakeFunnel, append(args, most)
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		return scriptTakeWindow, []any{most, rule.Limit(), widthUS(rule), arithOf(rule).Kept, horizonMS(rule), "1"}
	case limit.AlgorithmSlidingLog:
		return scriptTakeLog, []any{most, rule.Limit(), widthUS(rule), "1", "1"}
	}
	return nil, nil
}

// Refund is Refund of package remote.
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
	ctx, cancel := l.srv.deadline(ctx)
	defer cancel()
	full := toWire(rule, arithOf(rule).Full)
	args = append(append(args, full.us, full.rem), at...)
	r := l.run(ctx, scriptRefund, l.srv.keys.CounterKey(rule, key), args...)
	r.done("a refund")
	now, gen := r.now(), r.number(maxExact)
	back = r.handedBack(rule, n)
	if err = r.end(); err == nil && back > 0 {
		l.room.tellRoom(ctx, l.srv, key, rule, now, gen)
	}
	return back, err
}

// handedBack returns the end of an answer of refund.lua: by how many units of n fewer count now.
func (r *reader) handedBack(rule *limit.Rule, n int64) int64 {
	a := arithOf(rule)
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		level := r.span(rule)
		held := a.Whole(level)
		if a.Cost(held).Less(level) {
			held++
		}
		return min(n, held)
	case limit.AlgorithmSlidingLog:
		return min(n, r.number(limit.MaxUnits))
	}
	back := min(n, r.number(limit.MaxUnits))
	oldest, last, passed := r.number(limit.MaxUnits), 1000*r.number(maxExact), 1000*r.number(maxExact)
	still := func(units int64) int64 { return units - a.Gone(units, last, passed) }
	return back + still(oldest) - still(oldest-min(n-back, oldest))
}

// Reset forgets what has been used of key under rule. It is [Limiter.Set] to 0.
func (l *Limiter) Reset(ctx context.Context, key string, rule *limit.Rule) error {
	return l.Set(ctx, key, rule, 0)
}

// Set is Set of package remote.
func (l *Limiter) Set(ctx context.Context, key string, rule *limit.Rule, used int64) error {
	ctx, cancel := l.srv.deadline(ctx)
	defer cancel()
	done, err := l.renew(ctx, key, rule, used)
	if err == nil && used < rule.Limit() {
		l.room.tellRoom(ctx, l.srv, key, rule, done.Now, done.State.Gen)
	}
	return err
}

// Renewed is a counter that has been reset or set.
type Renewed struct {
	// Now is Redis' time at which that was done, since the Unix epoch.
	Now time.Duration
	// State is the counter since then.
	State State
}

// Renew is [Limiter.Set], for those who hold views of the counter. It publishes nothing.
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
		cost := toWire(rule, arithOf(rule).Cost(units))
		return []any{"f", rateText(rule), 0, horizonMS(rule), cost.us, cost.rem}, nil
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		return []any{"w", widthUS(rule), arithOf(rule).Kept, horizonMS(rule), units, 0}, nil
	case limit.AlgorithmSlidingLog:
		return []any{"l", widthUS(rule), 0, horizonMS(rule), min(units, rule.Limit()), 0}, nil
	}
	return nil, fmt.Errorf("remote: %w: %v", limit.ErrUnsupported, rule)
}
