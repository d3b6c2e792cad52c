package limit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// InContext is a limiter that answers from memory, with the methods of one that asks Redis:
// each takes a context and returns an error, as those of package remote do. Build one with
// [WithContext]. A nil or zero InContext refuses every check, with [ErrClosed]. It is safe
// for concurrent use if the limiter is. It keeps nothing: the limiter can be used directly at
// the same time, and must be closed.
//
// Memory answers at once. So a context that has ended changes nothing, except in WaitN, in Set of a
// limiter whose own Set takes a context, and in Take and TakeAll of an exact rule (see [Rule.Exact])
// if the limiter has TakeExact: these return what TakeExact and TakeAllExact do. The errors are those of invalid
// arguments: [ErrInvalidN], [ErrNilRule] and [ErrUnsupported]. The Result beside such an error
// is a refusal. No method allocates for a valid call.
type InContext struct {
	take    func(key string, rule *Rule, n int64) Result
	takeAll func(checks ...Check) AllResult
	peek    func(key string, rule *Rule) Result
	refund  func(key string, rule *Rule, n int64) int64
	waitN   func(ctx context.Context, key string, rule *Rule, n int64) error

	// These are nil if the limiter has no such method.
	takeExact    func(ctx context.Context, key string, rule *Rule, n int64) (Result, error)
	takeAllExact func(ctx context.Context, checks ...Check) (AllResult, error)
	charge       func(key string, rule *Rule, n int64) int64
	set          func(ctx context.Context, key string, rule *Rule, used int64) error
	setAtOnce    func(key string, rule *Rule, used int64) error
	checkRule    func(rule *Rule) error
	countInvalid func(rule *Rule)
	countExempt  func(name string)
}

// WithContext returns lim in the form that code takes which works with package remote as well,
// such as the middlewares of this project. *hybrid.Limiter and *local.Limiter have what lim
// needs, and a fake can have it. Charge, Set, CheckRule, CountInvalid, CountExempt, and TakeExact with
// TakeAllExact are passed on if lim has them.
//
// It returns nil if lim is nil or holds a nil pointer, as of a constructor that has failed.
func WithContext(lim interface {
	Take(key string, rule *Rule, n int64) Result
	TakeAll(checks ...Check) AllResult
	Peek(key string, rule *Rule) Result
	Refund(key string, rule *Rule, n int64) (back int64)
	WaitN(ctx context.Context, key string, rule *Rule, n int64) error
}) *InContext {
	if v := reflect.ValueOf(lim); lim == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	c := &InContext{take: lim.Take, takeAll: lim.TakeAll, peek: lim.Peek, refund: lim.Refund, waitN: lim.WaitN}
	switch s := lim.(type) {
	case interface { // hybrid
		Set(ctx context.Context, key string, rule *Rule, used int64) error
	}:
		c.set = s.Set
	case interface { // local
		Set(key string, rule *Rule, used int64) error
	}:
		c.setAtOnce = s.Set
	}
	if e, ok := lim.(interface {
		TakeExact(ctx context.Context, key string, rule *Rule, n int64) (Result, error)
		TakeAllExact(ctx context.Context, checks ...Check) (AllResult, error)
	}); ok {
		c.takeExact, c.takeAllExact = e.TakeExact, e.TakeAllExact
	}
	if ch, ok := lim.(interface {
		Charge(key string, rule *Rule, n int64) (charged int64)
	}); ok {
		c.charge = ch.Charge
	}
	if r, ok := lim.(interface{ CheckRule(rule *Rule) error }); ok {
		c.checkRule = r.CheckRule
	}
	if i, ok := lim.(interface{ CountInvalid(rule *Rule) }); ok {
		c.countInvalid = i.CountInvalid
	}
	if e, ok := lim.(interface{ CountExempt(name string) }); ok {
		c.countExempt = e.CountExempt
	}
	return c
}

func (c *InContext) usable() bool { return c != nil && c.take != nil }

// none is the answer of a limiter that there is not.
var none = Result{RetryAfter: Never, Source: SourceInvalid}

// Take admits n units of key, all or none. 0 units consume nothing.
func (c *InContext) Take(ctx context.Context, key string, rule *Rule, n int64) (Result, error) {
	switch {
	case !c.usable():
		return none, ErrClosed
	case rule.IsExact() && c.takeExact != nil:
		return c.takeExact(ctx, key, rule, n)
	}
	res := c.take(key, rule, n)
	if res.Source == SourceInvalid {
		return res, c.whyNot(rule, n)
	}
	return res, nil
}

// TakeAll admits the units of all checks, or none.
func (c *InContext) TakeAll(ctx context.Context, checks ...Check) (AllResult, error) {
	switch {
	case !c.usable():
		return AllResult{Result: none, By: -1}, ErrClosed
	case c.takeAllExact != nil && slices.ContainsFunc(checks, func(q Check) bool { return q.Rule.IsExact() }):
		return c.takeAllExact(ctx, checks...)
	}
	v := c.takeAll(checks...)
	if v.Source != SourceInvalid {
		return v, nil
	}
	if v.By < 0 || v.By >= len(checks) {
		return v, ErrUnsupported
	}
	return v, fmt.Errorf("limit: check %d: %w", v.By, c.whyNot(v.Rule, checks[v.By].N))
}

// Peek returns what Take of one unit would answer. It consumes nothing.
func (c *InContext) Peek(_ context.Context, key string, rule *Rule) (Result, error) {
	if !c.usable() {
		return none, ErrClosed
	}
	res := c.peek(key, rule)
	if res.Source == SourceInvalid {
		return res, c.whyNot(rule, 1)
	}
	return res, nil
}

// Refund hands n units of key back and returns how many fewer count now.
func (c *InContext) Refund(_ context.Context, key string, rule *Rule, n int64) (back int64, err error) {
	if !c.usable() {
		return 0, ErrClosed
	}
	if back = c.refund(key, rule, n); back == 0 {
		err = c.misuse(rule, n)
	}
	return back, err
}

// Charge counts n units of key, whether they fit or not, and returns how many count now. It returns
// an error that wraps [errors.ErrUnsupported] if the limiter has no Charge.
func (c *InContext) Charge(_ context.Context, key string, rule *Rule, n int64) (charged int64, err error) {
	switch {
	case !c.usable():
		return 0, ErrClosed
	case c.charge == nil:
		return 0, fmt.Errorf("limit: the limiter has no Charge: %w", errors.ErrUnsupported)
	}
	if charged = c.charge(key, rule, n); charged == 0 {
		err = c.misuse(rule, n)
	}
	return charged, err
}

// CanCharge reports whether the limiter has Charge.
func (c *InContext) CanCharge() bool { return c != nil && c.charge != nil }

// WaitN returns nil as soon as n units of key are admitted. It returns a [*WaitError] at once if
// that would take longer than ctx lasts, and the error of ctx if that ends before.
func (c *InContext) WaitN(ctx context.Context, key string, rule *Rule, n int64) error {
	if !c.usable() {
		return ErrClosed
	}
	return c.waitN(ctx, key, rule, n)
}

// Set makes used units of key count, whatever was counted before. It returns an error that
// wraps [errors.ErrUnsupported] if the limiter has no Set. The other errors are the limiter's.
func (c *InContext) Set(ctx context.Context, key string, rule *Rule, used int64) error {
	switch {
	case !c.usable():
		return ErrClosed
	case c.set != nil:
		return c.set(ctx, key, rule, used)
	case c.setAtOnce != nil:
		return c.setAtOnce(key, rule, used)
	}
	return fmt.Errorf("limit: the limiter has no Set: %w", errors.ErrUnsupported)
}

// CanSet reports whether the limiter has Set.
func (c *InContext) CanSet() bool { return c != nil && (c.set != nil || c.setAtOnce != nil) }

// CheckRule returns why the limiter cannot decide rule: [ErrNilRule], or what its own CheckRule
// says.
func (c *InContext) CheckRule(rule *Rule) error {
	switch {
	case !c.usable():
		return ErrClosed
	case c.checkRule != nil:
		return c.checkRule(rule)
	case !rule.Valid():
		return ErrNilRule
	}
	return nil
}

// CountInvalid counts a check that could not be made, if the limiter counts such checks.
func (c *InContext) CountInvalid(rule *Rule) {
	if c != nil && c.countInvalid != nil {
		c.countInvalid(rule)
	}
}

// CountExempt counts a check under the rules of a name that was not made because nothing limits who
// asks, if the limiter counts such checks.
func (c *InContext) CountExempt(name string) {
	if c != nil && c.countExempt != nil {
		c.countExempt(name)
	}
}

// misuse returns what is wrong with arguments, nil for nothing that is known.
func (c *InContext) misuse(rule *Rule, n int64) error {
	if err := c.CheckRule(rule); err != nil {
		return err
	}
	if n < 0 {
		return fmt.Errorf("%w: %d", ErrInvalidN, n)
	}
	return nil
}

// whyNot is misuse for arguments that the limiter has rejected.
func (c *InContext) whyNot(rule *Rule, n int64) error {
	if err := c.misuse(rule, n); err != nil {
		return err
	}
	return ErrUnsupported
}
