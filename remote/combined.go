package remote

import (
	"context"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The calls under combined rules, see [limit.Combine]. Take and Peek are one call of Redis, the others
// one for each part, so that an error may leave some of them done.

// takePartsAtMost looks at what is left, and takes that.
func (l *Limiter) takePartsAtMost(ctx context.Context, key string, rule *limit.Rule, n int64) (granted int64, res limit.Result, err error) {
	granted, res = decision.TakeLeft(n,
		func() (v limit.Result) {
			if v, err = l.Peek(ctx, key, rule); err != nil {
				v.Remaining = 0
			}
			return v
		},
		func(n int64) (v limit.Result) {
			if v, err = l.Take(ctx, key, rule, n); err != nil {
				v.Allowed = true // ends the tries; it is not known whether the units were taken
			}
			return v
		})
	if err != nil {
		return 0, decision.Failed(rule), err
	}
	return granted, res, nil
}

// leastOf calls do for each part until one returns an error, and returns the smallest number.
func leastOf(rule *limit.Rule, do func(part *limit.Rule) (int64, error)) (least int64, err error) {
	least = decision.Least(rule, func(part *limit.Rule) (n int64) {
		if err == nil {
			n, err = do(part)
		}
		return n
	})
	return least, err
}
