// Package byname decides by the rules that a rules file has names for. Every protocol that lets
// clients name a rule decides by it, so that all of them find the same counter.
package byname

import (
	"context"
	"errors"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// ErrNoRule says that the rules file has no rule of that name.
var ErrNoRule = errors.New("there is no such rule in the rules file")

// ErrNoKey says that the key is empty: all clients that have lost theirs would share one limit.
var ErrNoKey = errors.New("the key is empty")

// Unlimited is the answer for a key that nothing limits: admitted, with a limit of -1.
var Unlimited = limit.Result{Allowed: true, Limit: -1, Remaining: -1}

// Limiter is what decides; *hybrid.Limiter and *local.Limiter have it.
type Limiter interface {
	Take(key string, rule *limit.Rule, n int64) limit.Result
	Peek(key string, rule *limit.Rule) limit.Result
	Charge(key string, rule *limit.Rule, n int64) (charged int64)
	Refund(key string, rule *limit.Rule, n int64) (back int64)
}

// Decider decides. All fields are required.
type Decider struct {
	Limiter Limiter
	// Rules returns the rules in force.
	Rules func() *rules.Set
	// Look is told of keys that are looked at without being counted.
	Look func(key string, rule *limit.Rule)
}

// Take takes n units of a key under a named rule. The key's plan and overrides apply. The error is
// [ErrNoRule], [ErrNoKey], an [*UndecidedError] or a [rules.ErrNoAddress]; ctx bounds what an exact rule waits for.
func (d Decider) Take(ctx context.Context, name, key string, n int64) (limit.Result, error) {
	exempt := d.exempt
	if n == 0 {
		exempt = nobody
	}
	return d.by(name, key, exempt, func(key string, rule *limit.Rule) (limit.Result, error) { return d.TakeBy(ctx, key, rule, n) })
}

// Peek says what Take of one unit would answer.
func (d Decider) Peek(name, key string) (limit.Result, error) {
	return d.by(name, key, nobody, func(key string, rule *limit.Rule) (limit.Result, error) {
		d.Look(key, rule)
		return d.Limiter.Peek(key, rule), nil
	})
}

// Charge counts n units of a key, whether they fit or not; below 0 it gives units back. It answers as
// Peek does afterwards.
func (d Decider) Charge(name, key string, n int64) (limit.Result, error) {
	return d.by(name, key, nobody, func(key string, rule *limit.Rule) (limit.Result, error) {
		if n < 0 {
			d.Limiter.Refund(key, rule, -n)
		} else {
			d.Limiter.Charge(key, rule, n)
		}
		return d.Limiter.Peek(key, rule), nil
	})
}

// nobody is not told that nothing limits who asks: nothing was to be counted, or it has been.
func nobody(string) {}

// exempt counts that nothing limits who asks, if the limiter counts that.
func (d Decider) exempt(name string) {
	if v := inside.Of(d.Limiter); v != nil {
		v.CountExempt(name)
	}
}

// by finds the rule of a key, and decides by it under the key that counts. It calls exempt if nothing limits the key.
func (d Decider) by(name, key string, exempt func(name string), decide func(key string, rule *limit.Rule) (limit.Result, error)) (limit.Result, error) {
	if key == "" {
		return limit.Result{}, ErrNoKey
	}
	set := d.Rules()
	rule := set.For(name, key)
	if rule == nil {
		return limit.Result{}, ErrNoRule
	}
	counted, err := set.CounterKey(name, key)
	switch {
	case err != nil:
		return limit.Result{}, err
	case rule == limit.Unlimited():
		exempt(name)
		return Unlimited, nil
	}
	return decide(counted, rule)
}
