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

// TakeAll takes the units of all checks in one step: either each check consumes
// its own units, or none does and nothing is written. By says which check
// decided; its Result is what [Limiter.Take] would have answered. An empty list is
// admitted.
//
// The units of checks of one counter (the same key, algorithm and name) add up:
// each check must admit the sum, even if the limits of the rules differ. If the
// rules differ in anything else, the call is an error: each rule would convert what
// the other has counted. A dry run does not affect other checks: if it would refuse,
// its own units are not consumed, but those of the others are. Its units are not part
// of the sum for checks that are not dry runs.
//
// There are at most 1,000 checks, of a combined rule one for each part, and together at most 20,000
// buckets: Redis serves nobody else meanwhile. A sliding window has one more than its rule says, and
// any other counter has one. On a Redis Cluster, and on a [redis.Ring], all keys must be in one shard, see
// [Limiter.Shard]. All rules of one key are in the same shard.
//
// Errors: [limit.ErrInvalidN], [limit.ErrNilRule] and [limit.ErrUnsupported] (a
// rule, two rules of one counter, the keys' shards, too many buckets, or more than
// 1,000 checks), with the index of the check in the text if one is the cause:
// Redis was not called. A [*limit.KeyError] for an unusable key: nothing was consumed.
// All others as for Take. With an error the result is a refusal; By is the check
// that caused it, -1 if none did.
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
