package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/limit"
)

// MaxChecks is the largest number of checks of one [Limiter.TakeAll], which
// occupies Redis for all of them. Windows are read bucket by bucket: all checks
// together may have no more than 20,000, where one of a sliding window has a
// bucket more than its rule says, and one of another kind has one.
const MaxChecks = 1000

// maxBuckets bounds the buckets of one call. As many take some 0.1 s.
const maxBuckets = 20_000

// TakeAll is TakeAll of package remote, which documents it.
func (l *Limiter) TakeAll(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	if by, err := l.srv.together(checks); err != nil {
		return besideError(checks, by, decision.Invalid), err
	}
	if len(checks) == 0 {
		v := decision.None()
		v.Source = limit.SourceRemote
		return v, nil
	}
	a := l.srv.sumUp(spelled(checks))
	c := a.call()
	l.srv.do(ctx, c)
	if c.err != nil {
		return besideError(checks, -1, failed), wrap(c.err)
	}
	v, by, err := a.judge(newReader(c.val))
	if err != nil {
		return besideError(checks, by, failed), err
	}
	return v, nil
}

// spelled returns checks whose N says how many units are asked for, also where it was 0.
func spelled(checks []limit.Check) []limit.Check {
	out := slices.Clone(checks)
	for i := range out {
		out[i].N = out[i].Units()
	}
	return out
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
func (s *server) together(checks []limit.Check) (by int, err error) {
	if len(checks) > MaxChecks {
		return -1, fmt.Errorf("remote: %d checks at once, at most %d are allowed", len(checks), MaxChecks)
	}
	apart := s.splits()
	for i, q := range checks {
		switch {
		case !q.Rule.Valid():
			return i, fmt.Errorf("remote: check %d: %w", i, limit.ErrNilRule)
		case q.N < 0:
			return i, fmt.Errorf("remote: check %d: %w: %d", i, limit.ErrInvalidN, q.N)
		case letter(q.Rule.Algorithm()) == '?':
			return i, fmt.Errorf("remote: check %d: %w: %v", i, limit.ErrUnsupported, q.Rule)
		case apart && s.keys.Shard(q.Key) != s.keys.Shard(checks[0].Key):
			return i, fmt.Errorf("remote: check %d: %w: its key %s is in shard %d, that of check 0 in shard %d, and servers that share the shards decide on one at a time",
				i, limit.ErrUnsupported, escape.Quote(q.Key), s.keys.Shard(q.Key), s.keys.Shard(checks[0].Key))
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
		if buckets += arithOf(q.Rule).Kept + 1; buckets > maxBuckets {
			return i, fmt.Errorf("remote: check %d: %w: more than %d buckets in one call", i, limit.ErrUnsupported, maxBuckets)
		}
	}
	return -1, nil
}

// splits tells whether the client spreads the shards over several servers. A
// Ring would take all keys of a call to the server of the first one.
func (s *server) splits() bool {
	switch s.rdb.(type) {
	case *redis.Ring, interface{ ReloadState(context.Context) }:
		return s.keys.Shards() > 1
	}
	return false
}

// all is several checks, as they are put to the script.
type all struct {
	checks []limit.Check
	asked  []asked
	book   bool // false: one can never be admitted, so that the rest is only looked at
}

// asked is one check of several.
type asked struct {
	counter string        // its name in Redis
	ask     int64         // it is judged by
	own     int64         // units to be booked for it
	ahead   time.Duration // how long before they fit a funnel may book them
	fits    bool          // the answer
	tell    func(allowed bool, n int64) limit.Result
}

// units adds up what the checks of a counter ask for.
type units struct{ real, dry int64 }

// sumUp finds out what each check is to be judged by.
func (s *server) sumUp(checks []limit.Check) *all {
	a := &all{checks: checks, asked: make([]asked, len(checks)), book: true}
	sums := map[string]units{}
	for i, q := range checks {
		name := s.keys.CounterKey(q.Rule, q.Key)
		sum := sums[name]
		if q.Rule.IsDryRun() {
			sum.dry = addUnits(sum.dry, q.N)
		} else {
			sum.real = addUnits(sum.real, q.N)
		}
		sums[name], a.asked[i].counter = sum, name
	}
	for i, q := range checks {
		sum, e := sums[a.asked[i].counter], &a.asked[i]
		e.ask, e.own = sum.real, q.N
		if q.Rule.IsDryRun() {
			e.ask = addUnits(sum.real, sum.dry)
		}
		if a.never(i) {
			e.own = 0
			a.book = a.book && q.Rule.IsDryRun()
		}
	}
	return a
}

// addUnits saturates just above what any limit holds.
func addUnits(a, b int64) int64 { return min(a, limit.MaxUnits+1) + min(b, limit.MaxUnits+1) }

// never tells whether a check asks for more than there will ever be.
func (a *all) never(i int) bool { return a.asked[i].ask > a.checks[i].Rule.Limit() }

// call builds the call of the script.
func (a *all) call() *call {
	c := &call{script: scriptTakeAll, args: []any{digit(a.book)}}
	for i, e := range a.asked {
		rule, ask := a.checks[i].Rule, e.ask
		if a.never(i) {
			ask = 0 // only look: what is there is to be told
		}
		c.keys = append(c.keys, e.counter)
		dry := digit(rule.IsDryRun())
		switch rule.Algorithm() {
		case limit.AlgorithmFunnel:
			capacity := arithOf(rule).Add(arithOf(rule).Full, arith.Span{NS: int64(e.ahead)})
			full, cost, own := toWire(rule, capacity), toWire(rule, arithOf(rule).Cost(ask)), toWire(rule, arithOf(rule).Cost(e.own))
			c.args = append(c.args, "f", dry, rateText(rule), full.us, full.rem, horizonMS(rule), cost.us, cost.rem, own.us, own.rem)
		case limit.AlgorithmSlidingLog:
			c.args = append(c.args, "l", dry, rule.Limit(), widthUS(rule), ask, e.own)
		default:
			c.args = append(c.args, "w", dry, rule.Limit(), widthUS(rule), arithOf(rule).Kept, horizonMS(rule), ask, e.own)
		}
	}
	return c
}

func digit(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

// judge reads the reply. by is the check that an error is about, or -1.
func (a *all) judge(r *reader) (v limit.AllResult, by int, err error) {
	if by, err := a.blamed(r); err != nil {
		return v, by, err
	}
	booked := r.flag()
	r.now()
	held := map[string]int64{} // what has been booked on each counter
	for i := range a.asked {
		e, rule := &a.asked[i], a.checks[i].Rule
		e.fits, e.tell = r.flag() && !a.never(i), r.content(rule).tell
		if booked && e.fits {
			held[e.counter] += e.own
		}
	}
	if err := r.end(); err != nil {
		return v, -1, err
	}
	v = decision.None()
	for i, e := range a.asked {
		n := e.ask
		if !a.never(i) {
			n -= held[e.counter] // it is part of what is there now
		}
		decision.Add(&v, i, a.checks[i].Rule, decision.Judged(a.checks[i].Rule, e.tell(e.fits, n)))
	}
	if booked != v.Allowed {
		return v, -1, fmt.Errorf("%w: units booked: %v, although admitted: %v", ErrBadReply, booked, v.Allowed)
	}
	return v, -1, nil
}

// blamed returns the check whose key the reply blames.
func (a *all) blamed(r *reader) (by int, err error) {
	if r.err != nil || len(r.items) != 3 || r.items[0] != "e" {
		return -1, nil
	}
	r.pos = 1
	reason, i := r.text(), r.number(int64(len(a.asked))-1)
	if r.err != nil {
		return -1, r.err
	}
	return int(i), wrap(&limit.KeyError{Key: a.asked[i].counter, Reason: bounded(reason)})
}
