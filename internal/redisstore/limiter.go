package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Limiter is what package remote is the public face of: it documents the calls.
// The zero Limiter is not usable. It is safe for concurrent use, and no call is
// executed more than once.
type Limiter struct {
	srv  *server
	room teller
}

// New returns a limiter that uses rdb, see New of package remote.
func New(rdb redis.UniversalClient, o Options) (*Limiter, error) {
	srv, err := newServer(rdb, o)
	if err != nil {
		return nil, err
	}
	return &Limiter{srv: srv}, nil
}

// Keyspace returns the names of the limiter's keys.
func (l *Limiter) Keyspace() Keyspace { return l.srv.keys }

// Take is Take of package remote.
func (l *Limiter) Take(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	if err := askable(rule, n); err != nil {
		return decision.Invalid(rule), err
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
		return decision.Invalid(rule), fmt.Errorf("remote: %w: %v", limit.ErrUnsupported, rule)
	}
	res, _, err := q.answer(rule, l.run(ctx, s, l.srv.keys.CounterKey(rule, key), args...))
	return res, err
}

// answer reads the reply to the question, and how many units are used.
func (q question) answer(rule *limit.Rule, r *reader) (res limit.Result, used int64, err error) {
	booked := r.flag()
	c := r.content(rule)
	if err := r.end(); err != nil {
		return failed(rule), 0, err
	}
	return decision.Judged(rule, c.tell(q.allowed(rule, booked, c.tell(true, 0).Remaining), q.n)), c.used(), nil
}

// call returns the script that answers, and its arguments; no script if there
// is none for such a rule.
func (q question) call(rule *limit.Rule) (*script, []any) {
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		return scriptTakeFunnel, funnelArgs(rule, q.units(rule), arithOf(rule).Full)
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		return scriptTakeWindow, []any{q.units(rule), rule.Limit(), widthUS(rule), arithOf(rule).Kept, horizonMS(rule)}
	case limit.AlgorithmSlidingLog:
		return scriptTakeLog, []any{min(q.n, rule.Limit()+1), rule.Limit(), widthUS(rule), digit(q.book)}
	}
	return nil, nil
}

// funnelArgs asks a funnel for n units, as if its capacity were what is given.
func funnelArgs(rule *limit.Rule, n int64, capacity arith.Span) []any {
	cost, full := toWire(rule, arithOf(rule).Cost(n)), toWire(rule, capacity)
	return []any{rateText(rule), cost.us, cost.rem, full.us, full.rem, horizonMS(rule)}
}

// Peek is Peek of package remote.
func (l *Limiter) Peek(ctx context.Context, key string, rule *limit.Rule) (limit.Result, error) {
	if !rule.Valid() {
		return decision.Invalid(rule), fmt.Errorf("remote: %w", limit.ErrNilRule)
	}
	return l.decide(ctx, key, rule, question{n: 1})
}

// run executes a script on one key and returns a reader of its reply, which
// carries the error if there is one.
func (l *Limiter) run(ctx context.Context, s *script, key string, args ...any) *reader {
	c := &call{script: s, keys: []string{key}, args: args}
	l.srv.do(ctx, c)
	return c.reply()
}

// failed is the result beside an error of Redis.
func failed(rule *limit.Rule) limit.Result {
	res := limit.Result{Source: limit.SourceRemote}
	if rule.Valid() {
		res.Limit = rule.Limit()
	}
	return res
}
