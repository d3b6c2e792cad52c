package redisstore

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/limit"
)

// MaxChecks is the largest number of checks that are decided in one call, which occupies Redis until
// all are decided.
const MaxChecks = 1000

// maxBuckets bounds the buckets of one call. So many take about 0.1 s.
const maxBuckets = 20_000

// Together returns why valid checks cannot be decided in one call, and which check is the cause; -1: none.
func (s *Store) Together(checks []limit.Check) (by int, err error) {
	if len(checks) > MaxChecks {
		return -1, fmt.Errorf("%w: %d checks at once, at most %d are allowed", limit.ErrUnsupported, len(checks), MaxChecks)
	}
	buckets := 0
	for i, q := range checks {
		if shard, first := s.keys.Shard(q.Key), s.keys.Shard(checks[0].Key); s.apart && shard != first {
			return i, fmt.Errorf("%w: its key %s is in shard %d, that of check 0 in shard %d, and servers that share the shards decide on one at a time",
				limit.ErrUnsupported, escape.Quote(q.Key), shard, first)
		}
		if buckets += arith.Of(q.Rule).Kept + 1; buckets > maxBuckets {
			return i, fmt.Errorf("%w: more than %d buckets in one call", limit.ErrUnsupported, maxBuckets)
		}
	}
	if i := decision.Mistaken(checks); i >= 0 {
		return i, fmt.Errorf("%w: an earlier one counts its key under a rule of the same name but another rate, period, calendar or number of buckets; give each limit a name of its own",
			limit.ErrUnsupported)
	}
	return -1, nil
}

// All is several checks that are decided in one call, and what Redis is asked for them. A check with
// N = 0 is for no units.
type All struct {
	Mode   TakeMode
	Asks   []Ask
	checks []limit.Check
	units  []int64 // that must fit, by check
}

// units is what all checks of a counter ask for: dry runs, and the others.
type units struct{ real, dry int64 }

// SumUp computes how many units must fit for each check. If one can never be admitted, the
// others are only read. The checks are valid, see [Store.Together].
func (s *Store) SumUp(mode TakeMode, checks []limit.Check) *All {
	a := &All{checks: checks, Asks: make([]Ask, len(checks)), units: make([]int64, len(checks)), Mode: mode}
	sums := map[string]units{}
	for i, q := range checks {
		name := s.keys.CounterKey(q.Rule, q.Key)
		sum := sums[name]
		if q.Rule.IsDryRun() {
			sum.dry = AddUnits(sum.dry, q.N)
		} else {
			sum.real = AddUnits(sum.real, q.N)
		}
		sums[name], a.Asks[i] = sum, Ask{Counter: name, Rule: q.Rule}
	}
	for i, q := range checks {
		e := &a.Asks[i]
		sum := sums[e.Counter]
		if a.units[i] = sum.real; q.Rule.IsDryRun() {
			a.units[i] = AddUnits(sum.real, sum.dry)
		}
		if !a.never(i) {
			e.Units, e.Own = a.units[i], q.N
		} else if !q.Rule.IsDryRun() {
			a.Mode = Look + mode[1:]
		}
	}
	return a
}

// AddUnits adds without overflow: both are capped just above the largest limit.
func AddUnits(a, b int64) int64 { return min(a, arith.MaxUnits+1) + min(b, arith.MaxUnits+1) }

// never reports whether a check asks for more than its limit. Redis is asked nevertheless,
// for 0 units, because the answer contains the current count.
func (a *All) never(i int) bool { return a.units[i] > a.checks[i].Rule.Limit() }

// Fits reports whether a check is admitted.
func (a *All) Fits(t *Taken, i int) bool { return t.Answers[i].Units > 0 && !a.never(i) }

// Judge combines the answers of all checks. It calls each with every answer, unless that is nil.
func (a *All) Judge(t *Taken, each func(i int, res limit.Result)) (limit.AllResult, error) {
	held := map[string]int64{} // what has been booked on each counter
	for i, e := range a.Asks {
		if t.Booked && a.Fits(t, i) {
			held[e.Counter] += e.Own
		}
	}
	v := decision.None()
	for i, q := range a.checks {
		n := a.units[i]
		if !a.never(i) {
			n -= held[a.Asks[i].Counter] // they are part of the count in the answer
		}
		res := decision.Judged(q.Rule, t.Answers[i].Result(n))
		if decision.Add(&v, i, q.Rule, res); each != nil {
			each(i, res)
		}
	}
	if t.Booked != (v.Allowed && a.Mode[0] == Book[0]) {
		return v, fmt.Errorf("%w: units booked: %v, although admitted: %v", ErrBadReply, t.Booked, v.Allowed)
	}
	return v, nil
}
