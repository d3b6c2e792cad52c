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
// late, the units may have been taken or not, and the error does not tell.
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
// Errors: [limit.ErrInvalidN] for n < 0 and [limit.ErrNilRule] for a nil or zero
// rule (nothing was asked of Redis), a [*KeyError] for an unusable key,
// [ErrBadReply], the context's error, or what go-redis reports; see [Classify].
// With an error the Result is a refusal and says nothing about the key.
func (l *Limiter) Take(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	if !rule.Valid() {
		return refused(rule), fmt.Errorf("remote: %w", limit.ErrNilRule)
	}
	if n < 0 {
		return refused(rule), fmt.Errorf("remote: %w: %d", limit.ErrInvalidN, n)
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
	var res limit.Result
	var err error
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		res, err = l.takeFunnel(ctx, key, rule, q)
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		res, err = l.takeWindow(ctx, key, rule, q)
	case limit.AlgorithmSlidingLog:
		res, err = l.takeLog(ctx, key, rule, q)
	default:
		return refused(rule), fmt.Errorf("remote: %w: %v", limit.ErrUnsupported, rule)
	}
	if err != nil {
		return limit.Result{Limit: rule.Limit(), Source: limit.SourceRemote}, err
	}
	res.Source = limit.SourceRemote
	return res, nil
}

// Peek tells what Take of one unit would answer, without taking it or writing
// to Redis. The errors are those of [Limiter.Take].
func (l *Limiter) Peek(ctx context.Context, key string, rule *limit.Rule) (limit.Result, error) {
	if !rule.Valid() {
		return refused(rule), fmt.Errorf("remote: %w", limit.ErrNilRule)
	}
	return l.decide(ctx, key, rule, question{n: 1})
}

// Reset forgets what has been used of key under rule. It raises the key's
// generation, so that nodes that still hold an older view of it (package
// hybrid) drop that view instead of restoring it.
//
// The errors are those of [Limiter.Take]. An unusable key is not repaired.
func (l *Limiter) Reset(ctx context.Context, key string, rule *limit.Rule) error {
	if !rule.Valid() {
		return fmt.Errorf("remote: %w", limit.ErrNilRule)
	}
	kind, size := "w", int64(0)
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		kind, size = "f", denominator(rule)
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		size = widthUS(rule)
	case limit.AlgorithmSlidingLog:
		kind = "l"
	default:
		return fmt.Errorf("remote: %w: %v", limit.ErrUnsupported, rule)
	}
	r := l.run(ctx, scriptReset, l.srv.keys.CounterKey(rule, key), kind, size, rule.Kept(), horizonMS(rule))
	if !r.flag() && r.err == nil {
		r.fail("a reset that was not done")
	}
	return r.end()
}

func refused(rule *limit.Rule) limit.Result {
	res := limit.Refused(rule)
	res.Source = limit.SourceRemote
	return res
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

func (l *Limiter) takeFunnel(ctx context.Context, key string, rule *limit.Rule, q question) (limit.Result, error) {
	cost, full := toWire(rule, rule.Cost(q.units(rule))), toWire(rule, rule.Full())
	r := l.run(ctx, scriptTakeFunnel, l.srv.keys.CounterKey(rule, key),
		denominator(rule), cost.us, cost.rem, full.us, full.rem, horizonMS(rule))
	booked := r.flag()
	level := r.span(rule)
	if err := r.end(); err != nil {
		return limit.Result{}, err
	}
	left := rule.FunnelResult(true, 0, 1, level).Remaining
	return rule.FunnelResult(q.allowed(rule, booked, left), q.n, 1, level), nil
}

func (l *Limiter) takeWindow(ctx context.Context, key string, rule *limit.Rule, q question) (limit.Result, error) {
	width := widthUS(rule)
	r := l.run(ctx, scriptTakeWindow, l.srv.keys.CounterKey(rule, key),
		q.units(rule), rule.Limit(), width, rule.Kept(), horizonMS(rule))
	booked := r.flag()
	current, elapsed := r.number(maxExact), r.number(width-1)
	counts := make([]int64, rule.Kept()+1)
	for _, b := range r.buckets(rule) {
		age := current - b.ID
		if age < 0 || age >= int64(len(counts)) {
			r.fail("bucket %d while the current one is %d", b.ID, current)
			break
		}
		counts[age] = b.Units
	}
	if err := r.end(); err != nil {
		return limit.Result{}, err
	}
	past := time.Duration(elapsed) * time.Microsecond
	left := rule.WindowResult(true, 0, 1, counts, past).Remaining
	return rule.WindowResult(q.allowed(rule, booked, left), q.n, 1, counts, past), nil
}

func (l *Limiter) takeLog(ctx context.Context, key string, rule *limit.Rule, q question) (limit.Result, error) {
	book := "0"
	if q.book {
		book = "1"
	}
	r := l.run(ctx, scriptTakeLog, l.srv.keys.CounterKey(rule, key), min(q.n, rule.Limit()+1), rule.Limit(), widthUS(rule), book)
	allowed := r.flag() && q.n <= rule.Limit()
	count := r.number(maxExact)
	wait, reset := r.now(), r.now()
	if err := r.end(); err != nil {
		return limit.Result{}, err
	}
	res := limit.Result{Allowed: allowed, Limit: rule.Limit(), Remaining: max(rule.Limit()-count, 0), ResetAfter: reset}
	switch {
	case allowed:
	case q.n > rule.Limit():
		res.RetryAfter = limit.Never
	default:
		res.RetryAfter = max(wait, time.Microsecond)
	}
	return res, nil
}
