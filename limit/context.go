package limit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// ContextLimiter is the interface of a limiter whose calls take a context and return an error, as
// those of package remote do. The middlewares of this project take one. [WithContext] makes it of a
// limiter that answers from memory. A fake for a test may embed the interface, and have the methods
// that the test calls. All methods must be safe for concurrent use.
//
// A call whose context has no deadline, such as a Refund after a request has ended, must bound its time
// by itself. An error that wraps [ErrNilRule], [ErrInvalidN] or [ErrUnsupported] is the program's own fault. With
// any other the limiter is unavailable. The Result beside an error is a refusal.
type ContextLimiter interface {
	// Take admits n units of key, all or none. 0 units consume nothing.
	Take(ctx context.Context, key string, rule *Rule, n int64) (Result, error)
	// TakeAll admits the units of all checks, or none.
	TakeAll(ctx context.Context, checks ...Check) (AllResult, error)
	// Peek returns what Take of one unit would answer. It consumes nothing.
	Peek(ctx context.Context, key string, rule *Rule) (Result, error)
	// Refund hands n units of key back and returns how many fewer count now.
	Refund(ctx context.Context, key string, rule *Rule, n int64) (back int64, err error)
	// Charge counts n units of key, whether they fit or not, and returns how many count now.
	Charge(ctx context.Context, key string, rule *Rule, n int64) (charged int64, err error)
	// Set makes used units of key count, whatever was counted before.
	Set(ctx context.Context, key string, rule *Rule, used int64) error
	// WaitN returns nil as soon as n units of key are admitted. It returns a [*WaitError] at once if
	// that would take longer than ctx lasts, and the error of ctx if that ends before.
	WaitN(ctx context.Context, key string, rule *Rule, n int64) error
}

// inMemory is what WithContext needs.
type inMemory interface {
	Take(key string, rule *Rule, n int64) Result
	TakeAll(checks ...Check) AllResult
	Peek(key string, rule *Rule) Result
	Refund(key string, rule *Rule, n int64) (back int64)
	WaitN(ctx context.Context, key string, rule *Rule, n int64) error
}

// inContext is a limiter that answers from memory, with the methods of one that asks Redis. It may be
// zero.
type inContext struct {
	base inMemory
	// These are nil if the limiter has no such method.
	exact  exactTaker
	charge func(key string, rule *Rule, n int64) int64
	set    func(ctx context.Context, key string, rule *Rule, used int64) error
}

type exactTaker interface {
	TakeExact(ctx context.Context, checks ...Check) (AllResult, error)
}

// WithContext returns lim as a limiter whose calls take a context. *hybrid.Limiter and
// *local.Limiter have what lim needs, and a fake can have it. It keeps nothing: lim can be used
// directly at the same time, and must be closed.
//
// Memory answers at once. So a context that has ended changes nothing, except in WaitN, in Set of
// package hybrid, and in Take and TakeAll of an exact rule (see [Rule.Exact]): these return what TakeExact
// of package hybrid does. Without that method lim decides an exact rule like any other. Without Charge
// or Set, those calls return an error that wraps [errors.ErrUnsupported]. The other errors are those of
// invalid arguments. No method allocates for a valid call, unless its rule is exact.
//
// If lim is nil or holds a nil pointer, as of a constructor that has failed, each call returns
// [ErrClosed].
func WithContext(lim interface {
	Take(key string, rule *Rule, n int64) Result
	TakeAll(checks ...Check) AllResult
	Peek(key string, rule *Rule) Result
	Refund(key string, rule *Rule, n int64) (back int64)
	WaitN(ctx context.Context, key string, rule *Rule, n int64) error
}) ContextLimiter {
	if v := reflect.ValueOf(lim); lim == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return new(inContext)
	}
	c := &inContext{base: lim}
	switch s := lim.(type) {
	case interface { // hybrid
		Set(ctx context.Context, key string, rule *Rule, used int64) error
	}:
		c.set = s.Set
	case interface { // local
		Set(key string, rule *Rule, used int64) error
	}:
		c.set = func(_ context.Context, key string, rule *Rule, used int64) error { return s.Set(key, rule, used) }
	}
	c.exact, _ = lim.(exactTaker)
	if ch, ok := lim.(interface {
		Charge(key string, rule *Rule, n int64) (charged int64)
	}); ok {
		c.charge = ch.Charge
	}
	return c
}

// Unwrap returns the limiter. The middlewares of this project ask that for more.
func (c *inContext) Unwrap() any { return c.base }

// none is the answer of a limiter that there is not.
var none = Result{RetryAfter: Never, Source: SourceInvalid}

func (c *inContext) Take(ctx context.Context, key string, rule *Rule, n int64) (Result, error) {
	if c.base == nil {
		return none, ErrClosed
	}
	if c.exact != nil && n > 0 && rule.IsExact() {
		v, err := c.exact.TakeExact(ctx, Check{Key: key, Rule: rule, N: n})
		return v.Result, err
	}
	res := c.base.Take(key, rule, n)
	if res.Source == SourceInvalid {
		return res, c.whyNot(rule, n)
	}
	return res, nil
}

func (c *inContext) TakeAll(ctx context.Context, checks ...Check) (AllResult, error) {
	if c.base == nil {
		return AllResult{Result: none, By: -1}, ErrClosed
	}
	if c.exact != nil && slices.ContainsFunc(checks, func(q Check) bool { return q.Rule.IsExact() }) {
		return c.exact.TakeExact(ctx, checks...)
	}
	v := c.base.TakeAll(checks...)
	if v.Source != SourceInvalid {
		return v, nil
	}
	if v.By < 0 || v.By >= len(checks) {
		return v, ErrUnsupported
	}
	return v, fmt.Errorf("limit: check %d: %w", v.By, c.whyNot(v.Rule, checks[v.By].N))
}

func (c *inContext) Peek(_ context.Context, key string, rule *Rule) (Result, error) {
	if c.base == nil {
		return none, ErrClosed
	}
	res := c.base.Peek(key, rule)
	if res.Source == SourceInvalid {
		return res, c.whyNot(rule, 1)
	}
	return res, nil
}

func (c *inContext) Refund(_ context.Context, key string, rule *Rule, n int64) (back int64, err error) {
	if c.base == nil {
		return 0, ErrClosed
	}
	if back = c.base.Refund(key, rule, n); back == 0 {
		err = c.misuse(rule, n)
	}
	return back, err
}

func (c *inContext) Charge(_ context.Context, key string, rule *Rule, n int64) (charged int64, err error) {
	if c.base == nil {
		return 0, ErrClosed
	}
	if c.charge == nil {
		return 0, fmt.Errorf("limit: the limiter has no Charge: %w", errors.ErrUnsupported)
	}
	if charged = c.charge(key, rule, n); charged == 0 {
		err = c.misuse(rule, n)
	}
	return charged, err
}

func (c *inContext) WaitN(ctx context.Context, key string, rule *Rule, n int64) error {
	if c.base == nil {
		return ErrClosed
	}
	return c.base.WaitN(ctx, key, rule, n)
}

func (c *inContext) Set(ctx context.Context, key string, rule *Rule, used int64) error {
	if c.base == nil {
		return ErrClosed
	}
	if c.set == nil {
		return fmt.Errorf("limit: the limiter has no Set: %w", errors.ErrUnsupported)
	}
	return c.set(ctx, key, rule, used)
}

// misuse returns what is wrong with arguments, nil for nothing that is known.
func (c *inContext) misuse(rule *Rule, n int64) error {
	if !rule.Valid() {
		return ErrNilRule
	}
	if r, ok := c.base.(interface{ CheckRule(rule *Rule) error }); ok {
		if err := r.CheckRule(rule); err != nil {
			return err
		}
	}
	if n < 0 {
		return fmt.Errorf("%w: %d", ErrInvalidN, n)
	}
	return nil
}

// whyNot is misuse for arguments that the limiter has rejected.
func (c *inContext) whyNot(rule *Rule, n int64) error {
	if err := c.misuse(rule, n); err != nil {
		return err
	}
	return ErrUnsupported
}
