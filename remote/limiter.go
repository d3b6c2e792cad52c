package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Limiter asks Redis for every decision, one round trip each. Build one with
// [New]; the zero Limiter is not usable. It is safe for concurrent use, holds
// nothing that must be closed, and leaves the client to its owner.
//
// It promises no more than one execution per call: when the answer is lost or
// late, the units may have been taken or not, and the error does not tell. A nil
// context stands for [context.Background].
type Limiter struct{ srv *server }

// New returns a limiter that uses rdb, a client, a failover client or a cluster
// client. It does not talk to Redis yet. The error names every problem of the
// options.
func New(rdb redis.UniversalClient, o Options) (*Limiter, error) {
	srv, err := newServer(rdb, o)
	if err != nil {
		return nil, err
	}
	return &Limiter{srv: srv}, nil
}

// Take asks for n units of key under rule: all of them or none. A refusal
// costs nothing. More units than the limit holds are refused with
// [limit.Never]; 0 units only look.
//
// A rule that is a dry run lets everything pass, see [limit.Result.WouldRefuse];
// errors stay errors.
//
// Errors: [limit.ErrInvalidN] for n < 0 and [limit.ErrNilRule] for a nil or zero
// rule (nothing was asked of Redis), a [*KeyError] for an unusable key,
// [ErrBadReply], the context's error, or what go-redis reports; see [Classify].
// With an error the Result is a refusal and says nothing about the key.
func (l *Limiter) Take(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	if err := askable(rule, n); err != nil {
		return limit.Invalid(rule), err
	}
	return l.decide(ctx, key, rule, question{n: n, book: true})
}

// question is what is asked of a counter: would n units be admitted, and book
// them if they are.
type question struct {
	n    int64
	book bool
}

// units returns what the scripts are to book: nothing if only an answer is
// wanted, or if the units can never be admitted; the reply tells what remains.
func (q question) units(rule *limit.Rule) int64 {
	if !q.book || q.n > rule.Limit() {
		return 0
	}
	return q.n
}

// allowed tells the answer from what the script said of the units it was to
// book and from what remains afterwards.
func (q question) allowed(rule *limit.Rule, booked bool, remaining int64) bool {
	if q.book {
		return booked && q.n <= rule.Limit()
	}
	return q.n <= remaining
}

func (l *Limiter) decide(ctx context.Context, key string, rule *limit.Rule, q question) (limit.Result, error) {
	s, args := q.call(rule)
	if s == nil {
		return limit.Invalid(rule), fmt.Errorf("remote: %w: %v", limit.ErrUnsupported, rule)
	}
	r := l.run(ctx, s, l.srv.keys.CounterKey(rule, key), args...)
	booked := r.flag()
	tell := r.counter(rule)
	if err := r.end(); err != nil {
		return failed(rule), err
	}
	return rule.Judged(tell(q.allowed(rule, booked, tell(true, 0).Remaining), q.n)), nil
}

// call returns the script that answers, and its arguments; no script if there
// is none for such a rule.
func (q question) call(rule *limit.Rule) (*script, []any) {
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		return scriptTakeFunnel, funnelArgs(rule, q.units(rule), rule.Full())
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		return scriptTakeWindow, []any{q.units(rule), rule.Limit(), widthUS(rule), rule.Kept(), horizonMS(rule)}
	case limit.AlgorithmSlidingLog:
		return scriptTakeLog, []any{min(q.n, rule.Limit()+1), rule.Limit(), widthUS(rule), digit(q.book)}
	}
	return nil, nil
}

// funnelArgs asks a funnel for n units, as if its capacity were what is given.
func funnelArgs(rule *limit.Rule, n int64, capacity limit.Span) []any {
	cost, full := toWire(rule, rule.Cost(n)), toWire(rule, capacity)
	return []any{rateText(rule), cost.us, cost.rem, full.us, full.rem, horizonMS(rule)}
}

// Peek tells what Take of one unit would answer, without taking it or writing
// to Redis. The errors are those of [Limiter.Take].
func (l *Limiter) Peek(ctx context.Context, key string, rule *limit.Rule) (limit.Result, error) {
	if !rule.Valid() {
		return limit.Invalid(rule), fmt.Errorf("remote: %w", limit.ErrNilRule)
	}
	return l.decide(ctx, key, rule, question{n: 1})
}

// run executes a script on one key and returns a reader of its reply, which
// carries the error if there is one.
func (l *Limiter) run(ctx context.Context, s *script, key string, args ...any) *reader {
	c := &call{script: s, keys: []string{key}, args: args}
	l.srv.do(ctx, c)
	if c.err != nil {
		return &reader{err: wrap(c.err)}
	}
	r := newReader(c.val)
	r.refused(key)
	return r
}

// failed is the result beside an error of Redis.
func failed(rule *limit.Rule) limit.Result {
	res := limit.Result{Source: limit.SourceRemote}
	if rule.Valid() {
		res.Limit = rule.Limit()
	}
	return res
}

// counter returns the next items, what a counter holds, as a function that
// describes the answer to a question for n units.
func (r *reader) counter(rule *limit.Rule) func(allowed bool, n int64) limit.Result {
	var tell func(allowed bool, n int64) limit.Result
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		level := r.span(rule)
		tell = func(allowed bool, n int64) limit.Result { return rule.FunnelResult(allowed, n, 1, level) }
	case limit.AlgorithmSlidingLog:
		count, wait, reset := r.number(maxExact), r.now(), r.now()
		tell = func(allowed bool, n int64) limit.Result { return logResult(rule, allowed, n, count, wait, reset) }
	default:
		counts, last, past := r.window(rule)
		tell = func(allowed bool, n int64) limit.Result { return rule.WindowResult(allowed, n, 1, counts, last, past) }
	}
	return func(allowed bool, n int64) limit.Result {
		res := tell(allowed, n)
		res.Source = limit.SourceRemote
		return res
	}
}

// logResult describes the answer to a question for n units of a sliding log.
func logResult(rule *limit.Rule, allowed bool, n, count int64, wait, reset time.Duration) limit.Result {
	res := limit.Result{Allowed: allowed, Limit: rule.Limit(), Remaining: max(rule.Limit()-count, 0), ResetAfter: reset}
	switch {
	case allowed:
	case n > rule.Limit():
		res.RetryAfter = limit.Never
	default:
		res.RetryAfter = max(wait, time.Microsecond)
	}
	return res
}
