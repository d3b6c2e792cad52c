package remote

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeAll takes the units of all checks in one step, or none. By says which check decided. The units of
// checks of one counter (the same key, algorithm and name) add up; rules of one counter may differ in
// the limit alone. A dry run does not affect other checks. No checks are admitted.
//
// There are at most 1,000 checks (a combined rule counts as one for each part) with together 20,000
// buckets: Redis serves nobody else meanwhile. On a Cluster, and on a [redis.Ring], all keys must be in
// one shard, see [Limiter.Shard]. Else the error wraps [limit.ErrUnsupported], and Redis was not called.
//
// The other errors are those of [Limiter.Take]; the text has the index of the check that is the cause, and
// so has By. With an error the result is a refusal. With a [*limit.KeyError] nothing was consumed.
func (l *Limiter) TakeAll(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	for i, q := range checks {
		if err := decision.Askable(q.Rule, q.N); err != nil {
			return decision.Refused(checks, i, decision.Invalid), fmt.Errorf("remote: check %d: %w", i, err)
		}
	}
	all, of := decision.Expand(checks)
	if by, err := l.store.Together(all); err != nil {
		v, err := decision.Unfit(all, of, by, err)
		return v, redisstore.Wrap(err)
	}
	if len(all) == 0 {
		v := decision.None()
		v.Source = limit.SourceRemote
		return v, nil
	}
	all = slices.Clone(all)
	for i := range all {
		all[i].N = cmp.Or(all[i].N, 1)
	}
	v, err := l.askAll(ctx, redisstore.Book, all)
	return decision.Original(v, of), err
}

// askAll takes or reads the units of valid checks. Here an N of 0 means 0 units.
func (l *Limiter) askAll(ctx context.Context, mode redisstore.TakeMode, checks []limit.Check) (limit.AllResult, error) {
	a := l.store.SumUp(mode, checks)
	t, by, err := l.store.Take(ctx, a.Mode, a.Asks...)
	if err == nil {
		var v limit.AllResult
		if v, err = a.Judge(&t, nil); err == nil {
			return v, nil
		}
	}
	return decision.Refused(checks, by, decision.Failed), err
}
