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
// occupies Redis for all of them. Windows are read bucket by bucket: all checks
// together may have no more than 20,000, where one of a sliding window has a
// bucket more than its rule says, and one of another kind has one.
const MaxChecks = 1000

// maxBuckets bounds the buckets of one call. As many take some 0.1 s.
const maxBuckets = 20_000

// TakeAll asks for the units of all checks in one step: each of them consumes
// its own, or none does, and nothing is written. By says which check
// decided; its Result is what [Limiter.Take] would have answered. No checks are
// allowed.
//
// The units of checks of one counter (the same key, algorithm and name) add up:
// each of them must admit the sum, also where their rules differ in the limit.
// Where they differ in more, they are refused: each would re-express what the other
// has counted. A dry run stands in nobody's way: if it would refuse, its own units
// are not consumed, and those of the others are; and its units are not part of the
// sum for those that are no dry run.
//
// On a Redis Cluster, and on a [redis.Ring], all keys must be in one shard: the
// rules of one key are, different keys need not be. [Limiter.Shard] tells.
//
// Errors: [limit.ErrInvalidN], [limit.ErrNilRule] and [limit.ErrUnsupported] (a
// rule, two rules of one counter, the keys' shards, or too many buckets), with the
// index of the check in the text, and another for more than [MaxChecks]: nothing
// was asked of Redis. A [*limit.KeyError] for an unusable key: nothing was consumed.
// All others as for Take. With an error the result is a refusal; By is the check
// to blame, -1 if there is none.
func (l *Limiter) TakeAll(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
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

// askAll asks checks whose N says how many units are wanted, also where it is 0.
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

// besideError is the result beside an error, which check by is to blame for; -1: none is.
func besideError(checks []limit.Check, by int, result func(*limit.Rule) limit.Result) limit.AllResult {
	v := limit.AllResult{By: by}
	if by >= 0 {
		v.Rule = checks[by].Rule
	}
	v.Result = result(v.Rule)
	return v
}

// together tells why checks cannot be asked together, and which is to blame.
func (l *Limiter) together(checks []limit.Check) (by int, err error) {
	if len(checks) > MaxChecks {
		return -1, fmt.Errorf("remote: %d checks at once, at most %d are allowed", len(checks), MaxChecks)
	}
	for i, q := range checks {
		if err := askable(q.Rule, q.N); err != nil {
			return i, fmt.Errorf("remote: check %d: %w", i, err)
		}
		if l.apart && l.Shard(q.Key) != l.Shard(checks[0].Key) {
			return i, fmt.Errorf("remote: check %d: %w: its key %s is in shard %d, that of check 0 in shard %d, and servers that share the shards decide on one at a time",
				i, limit.ErrUnsupported, escape.Quote(q.Key), l.Shard(q.Key), l.Shard(checks[0].Key))
		}
	}
	if i := decision.Mistaken(checks); i >= 0 {
		return i, fmt.Errorf("remote: check %d: %w: an earlier one counts its key under a rule of the same name but another rate, period or number of buckets; give each limit a name of its own",
			i, limit.ErrUnsupported)
	}
	return light(checks)
}

// light tells whether checks have so many buckets that Redis would answer nobody
// else for too long, and with which of them it is too many.
func light(checks []limit.Check) (by int, err error) {
	buckets := 0
	for i, q := range checks {
		if buckets += arith.Of(q.Rule.Arith()).Kept + 1; buckets > maxBuckets {
			return i, fmt.Errorf("remote: check %d: %w: more than %d buckets in one call", i, limit.ErrUnsupported, maxBuckets)
		}
	}
	return -1, nil
}

// all is several checks, as they are put to Redis.
type all struct {
	checks []limit.Check
	asks   []redisstore.Ask
	units  []int64 // what each check is judged by
	mode   redisstore.TakeMode
}

// units adds up what the checks of a counter ask for.
type units struct{ real, dry int64 }

// sumUp finds out what each check is to be judged by. If one can never be admitted, the others
// are only looked at.
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

// addUnits saturates just above what any limit holds.
func addUnits(a, b int64) int64 { return min(a, limit.MaxUnits+1) + min(b, limit.MaxUnits+1) }

// never tells whether a check asks for more than there will ever be. What is there is asked for
// all the same, because the answer tells it.
func (a *all) never(i int) bool { return a.units[i] > a.checks[i].Rule.Limit() }

// fits tells whether a check is admitted.
func (a *all) fits(t *redisstore.Taken, i int) bool { return t.Answers[i].Units > 0 && !a.never(i) }

// judge puts the answers together.
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
			n -= held[a.asks[i].Counter] // it is part of what is there now
		}
		decision.Add(&v, i, q.Rule, decision.Judged(q.Rule, t.Answers[i].Result(a.fits(t, i), n)))
	}
	if t.Booked != (v.Allowed && a.mode == redisstore.Book) {
		return v, fmt.Errorf("%w: units booked: %v, although admitted: %v", ErrBadReply, t.Booked, v.Allowed)
	}
	return v, nil
}
