package remote

import (
	"context"
	"fmt"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// MaxChecks is the largest number of checks of one [Limiter.TakeAll], which
// occupies Redis until all are decided. A check of a combined rule counts as one for each part. Windows are read bucket by bucket: all checks
// together may have at most 20,000 buckets. A sliding window has one bucket more
// than its rule says; a counter of another kind has one.
const MaxChecks = 1000

// maxBuckets bounds the buckets of one call. So many take about 0.1 s.
const maxBuckets = 20_000

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
// On a Redis Cluster, and on a [redis.Ring], all keys must be in one shard, see
// [Limiter.Shard]. All rules of one key are in the same shard.
//
// Errors: [limit.ErrInvalidN], [limit.ErrNilRule] and [limit.ErrUnsupported] (a
// rule, two rules of one counter, the keys' shards, too many buckets, or more than
// [MaxChecks] checks), with the index of the check in the text if one is the cause:
// Redis was not called. A [*limit.KeyError] for an unusable key: nothing was consumed.
// All others as for Take. With an error the result is a refusal; By is the check
// that caused it, -1 if none did.
func (l *Limiter) TakeAll(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	if all, of := decision.Expand(checks); of != nil {
		for i, q := range checks { // so that the error has the index of the caller
			if err := askable(q.Rule, q.N); err != nil {
				return besideError(checks, i, decision.Invalid), fmt.Errorf("remote: check %d: %w", i, err)
			}
		}
		v, err := l.TakeAll(ctx, all...)
		return decision.Original(v, of), err
	}
	if by, err := l.together(checks); err != nil {
		return besideError(checks, by, decision.Invalid), err
	}
	if len(checks) == 0 {
		v := decision.None()
		v.Source = limit.SourceRemote
		return v, nil
	}
	checks = slices.Clone(checks)
	for i := range checks {
		checks[i].N = checks[i].Units()
	}
	return l.askAll(ctx, redisstore.Book, checks)
}

// askAll takes or reads the units of valid checks. Here an N of 0 means 0 units.
func (l *Limiter) askAll(ctx context.Context, mode redisstore.TakeMode, checks []limit.Check) (limit.AllResult, error) {
	a := l.sumUp(mode, checks)
	t, by, err := l.store.Take(ctx, a.mode, a.asks...)
	if err == nil {
		var v limit.AllResult
		if v, err = a.judge(&t); err == nil {
			return v, nil
		}
	}
	return besideError(checks, by, failed), err
}

// besideError returns the answer that goes with an error. Check by caused it; -1: none did.
func besideError(checks []limit.Check, by int, result func(*limit.Rule) limit.Result) limit.AllResult {
	v := limit.AllResult{By: by}
	if by >= 0 {
		v.Rule = checks[by].Rule
	}
	v.Result = result(v.Rule)
	return v
}

// together returns why checks cannot be decided in one call, and which check is the cause.
func (l *Limiter) together(checks []limit.Check) (by int, err error) {
	if len(checks) > MaxChecks {
		return -1, fmt.Errorf("remote: %w: %d checks at once, at most %d are allowed", limit.ErrUnsupported, len(checks), MaxChecks)
	}
	buckets := 0
	for i, q := range checks {
		if err := askable(q.Rule, q.N); err != nil {
			return i, fmt.Errorf("remote: check %d: %w", i, err)
		}
		if l.apart && l.Shard(q.Key) != l.Shard(checks[0].Key) {
			return i, fmt.Errorf("remote: check %d: %w: its key %s is in shard %d, that of check 0 in shard %d, and servers that share the shards decide on one at a time",
				i, limit.ErrUnsupported, escape.Quote(q.Key), l.Shard(q.Key), l.Shard(checks[0].Key))
		}
		if buckets += arith.Of(q.Rule).Kept + 1; buckets > maxBuckets {
			return i, fmt.Errorf("remote: check %d: %w: more than %d buckets in one call", i, limit.ErrUnsupported, maxBuckets)
		}
	}
	if i := decision.Mistaken(checks); i >= 0 {
		return i, fmt.Errorf("remote: check %d: %w: an earlier one counts its key under a rule of the same name but another rate, period or number of buckets; give each limit a name of its own",
			i, limit.ErrUnsupported)
	}
	return -1, nil
}

// all is several checks, and what Redis is asked for them.
type all struct {
	checks []limit.Check
	asks   []redisstore.Ask
	units  []int64 // that must fit, by check
	mode   redisstore.TakeMode
}

// units is what all checks of a counter ask for: dry runs, and the others.
type units struct{ real, dry int64 }

// sumUp computes how many units must fit for each check. If one can never be admitted, the
// others are only read.
func (l *Limiter) sumUp(mode redisstore.TakeMode, checks []limit.Check) *all {
	a := &all{checks: checks, asks: make([]redisstore.Ask, len(checks)), units: make([]int64, len(checks)), mode: mode}
	sums := map[string]units{}
	for i, q := range checks {
		name := l.store.Keyspace().CounterKey(q.Rule, q.Key)
		sum := sums[name]
		if q.Rule.IsDryRun() {
			sum.dry = addUnits(sum.dry, q.N)
		} else {
			sum.real = addUnits(sum.real, q.N)
		}
		sums[name], a.asks[i] = sum, redisstore.Ask{Counter: name, Rule: q.Rule}
	}
	for i, q := range checks {
		e := &a.asks[i]
		sum := sums[e.Counter]
		if a.units[i] = sum.real; q.Rule.IsDryRun() {
			a.units[i] = addUnits(sum.real, sum.dry)
		}
		if !a.never(i) {
			e.Units, e.Own = a.units[i], q.N
		} else if !q.Rule.IsDryRun() {
			a.mode = redisstore.Look
		}
	}
	return a
}

// addUnits adds without overflow: both are capped just above the largest limit.
func addUnits(a, b int64) int64 { return min(a, limit.MaxUnits+1) + min(b, limit.MaxUnits+1) }

// never reports whether a check asks for more than its limit. Redis is asked nevertheless,
// for 0 units, because the answer contains the current count.
func (a *all) never(i int) bool { return a.units[i] > a.checks[i].Rule.Limit() }

// fits reports whether a check is admitted.
func (a *all) fits(t *redisstore.Taken, i int) bool { return t.Answers[i].Units > 0 && !a.never(i) }

// judge combines the answers of all checks.
func (a *all) judge(t *redisstore.Taken) (limit.AllResult, error) {
	held := map[string]int64{} // what has been booked on each counter
	for i, e := range a.asks {
		if t.Booked && a.fits(t, i) {
			held[e.Counter] += e.Own
		}
	}
	v := decision.None()
	for i, q := range a.checks {
		n := a.units[i]
		if !a.never(i) {
			n -= held[a.asks[i].Counter] // they are part of the count in the answer
		}
		decision.Add(&v, i, q.Rule, decision.Judged(q.Rule, t.Answers[i].Result(a.fits(t, i), n)))
	}
	if t.Booked != (v.Allowed && a.mode == redisstore.Book) {
		return v, fmt.Errorf("%w: units booked: %v, although admitted: %v", ErrBadReply, t.Booked, v.Allowed)
	}
	return v, nil
}
