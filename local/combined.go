package local

import (
	"context"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/internal/waitqueue"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The calls under combined rules, see [limit.Combine]. Each asks the limiter about the parts.

// combined reports whether n units can be asked for, under a combined rule.
func (l *Limiter) combined(rule *limit.Rule, n int64) bool {
	return l != nil && l.table != nil && n >= 0 && rule.Parts() != nil
}

// takeParts is Take of a rule that the table cannot decide. One that is not combined is invalid.
func (l *Limiter) takeParts(key string, rule *limit.Rule, n int64) limit.Result {
	switch {
	case !l.combined(rule, n):
		return decision.Invalid(rule)
	case n == 0:
		return decision.Tightest(rule, func(part *limit.Rule) limit.Result { return l.Take(key, part, 0) }).Result
	}
	var few [table.FewChecks]limit.Check
	return l.TakeAll(decision.AppendParts(few[:0], key, rule, n)...).Result
}

// least calls do for each part and returns the smallest number; 0 without parts.
func (l *Limiter) least(rule *limit.Rule, n int64, do func(part *limit.Rule) int64) int64 {
	if !l.combined(rule, n) {
		return 0
	}
	return decision.Least(rule, do)
}

// waitForParts waits until all parts admit n units.
func (l *Limiter) waitForParts(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	return l.queues.Wait(ctx, key, rule, n, waitqueue.Limiter{
		Reserve: func(counter.Terms) limit.Reservation {
			res := l.takeParts(key, rule, n)
			if !res.Allowed {
				return decision.NotReserved(res)
			}
			return decision.Reserved(res, func() { l.Refund(key, rule, n) })
		},
		Estimate: func(ahead, n int64) int64 {
			return decision.Longest(rule, func(part *limit.Rule) int64 {
				return l.table.Estimate(key, part, ahead, n, int64(l.clock.Now()))
			})
		},
		Unclaim: func() {},
	})
}
