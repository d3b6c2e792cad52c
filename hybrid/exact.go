package hybrid

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeExact is [Limiter.Take] for a limit that must be exact, such as one of log-ins or payouts: Redis
// decides, unless this node knows that it would refuse. So it waits for one round trip, or does not
// wait at all.
//
// What this node knows is what Redis has said: in an answer, or in the notice of another node that the
// key is used up. Units that this node has admitted by Take and not reported yet count as well. A key
// that has room again although nobody has told this node, as after a Reset whose notice was lost, is
// refused for at most as long as by Take. Otherwise Redis decides with the script of package remote.
// Callers of the same moment share one exchange.
//
// If all nodes take a key by TakeExact only, it admits no more than package remote does. Units that
// other calls admit count when they are reported, so that their bound holds for the key, see
// docs/guarantees.md.
//
// In an outage [Options].Fallback decides as for Take, at once, and Source is
// [limit.SourceDegraded]. Until the outage is noticed the call fails. Each call is executed at most
// once. With an error the Result is a refusal, and the units may have been taken or not: only an error
// about the arguments means that they were not. The errors are that of [Limiter.CheckRule],
// [limit.ErrInvalidN], [limit.ErrClosed], an [*UnavailableError], a [*limit.KeyError] and the error of
// ctx. Give ctx the time that the caller can wait: without it a call may wait for up to 8 times
// [Options].CommandTimeout.
//
// Source is [limit.SourceRemote] if Redis has decided. 0 units consume nothing and ask nobody. A
// limiter without Redis decides by itself.
func (l *Limiter) TakeExact(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	if err := l.why(rule, n); err != nil {
		return l.invalid(key, rule, n), fmt.Errorf("hybrid: take: %w", err)
	}
	if n == 0 {
		return l.Take(key, rule, 0), nil
	}
	var few [fewParts]limit.Check
	checks := decision.AppendParts(few[:0], key, rule, n)
	if len(checks) == 0 {
		checks = append(checks, limit.Check{Key: key, Rule: rule, N: n})
	}
	v, err := l.takeExactly(ctx, checks)
	return v.Result, err
}

// TakeAllExact is [Limiter.TakeAll] by which Redis decides as in [Limiter.TakeExact]: all checks
// together, or none. On a Redis Cluster and on a Ring their keys must be in one shard of this limiter;
// if not, the error wraps [limit.ErrUnsupported]. The error says which check is the cause.
func (l *Limiter) TakeAllExact(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	for i := range checks {
		if err := l.why(checks[i].Rule, checks[i].N); err != nil {
			v := decision.None()
			decision.Add(&v, i, checks[i].Rule, l.invalid(checks[i].Key, checks[i].Rule, checks[i].N))
			return v, fmt.Errorf("hybrid: take: check %d: %w", i, err)
		}
	}
	all, of := decision.Expand(checks)
	v, err := l.takeExactly(ctx, all)
	if of != nil {
		v = decision.Original(v, of)
	}
	return v, err
}

// takeExactly is TakeAllExact of checks that are valid, and not of combined rules.
func (l *Limiter) takeExactly(ctx context.Context, checks []limit.Check) (limit.AllResult, error) {
	switch {
	case len(checks) == 0:
		return decision.None(), nil
	case l.closed.Load():
		return besideError(checks, -1), fmt.Errorf("hybrid: take: %w", limit.ErrClosed)
	case l.driver == nil:
		return l.TakeAll(checks...), nil
	}
	if by, err := l.driver.store.Together(checks); err != nil {
		v := besideError(checks, by)
		l.CountInvalid(v.Rule)
		v.Source = limit.SourceInvalid
		return v, fmt.Errorf("hybrid: take: %w", err)
	}
	if v, known := l.knows(checks); known {
		return v, nil
	}
	return l.askExactly(orBackground(ctx), checks)
}

// besideError returns the refusal beside an error. Check by has caused it; -1: none has.
func besideError(checks []limit.Check, by int) limit.AllResult {
	v := limit.AllResult{Result: limit.Result{Source: limit.SourceRemote}, By: by}
	if by >= 0 {
		v.Rule, v.Limit = checks[by].Rule, checks[by].Rule.Limit()
	}
	return v
}

// knows decides checks if Redis need not be asked: in an outage, or if this node knows that it would
// refuse.
func (l *Limiter) knows(checks []limit.Check) (v limit.AllResult, known bool) {
	v, now := decision.None(), l.now()
	for i := range checks {
		q := &checks[i]
		res, refused := l.table.Refuses(q.Key, q.Rule, q.Units(), now)
		if res.Source == limit.SourceDegraded || l.link.Degraded(q.Key) {
			return l.TakeAll(checks...), true
		}
		if refused {
			decision.Add(&v, i, q.Rule, res)
		}
	}
	if v.Allowed { // none refuses, or only dry runs do: Redis counts the others
		return v, len(checks) == 1 && v.WouldRefuse && l.counted(checks, &v)
	}
	return v, l.counted(checks, &v)
}

// counted counts the one answer of this node that decides checks. It returns true.
func (l *Limiter) counted(checks []limit.Check, v *limit.AllResult) bool {
	l.count(checks[v.By].Rule, checks[v.By].Units(), v.Result)
	return true
}

// askExactly lets Redis decide checks.
func (l *Limiter) askExactly(ctx context.Context, checks []limit.Check) (limit.AllResult, error) {
	asked := slices.Clone(checks)
	for i := range asked {
		asked[i].N = asked[i].Units()
	}
	all := l.driver.store.SumUp(redisstore.BookState, asked)
	c := &exactCall{checks: asked, TakeRequest: redisstore.TakeRequest{Mode: all.Mode, Asks: all.Asks}, done: make(chan struct{})}
	l.stats.ExactAsked.Add(1)
	err := l.driver.exact.do(ctx, c)
	switch {
	case err == nil && c.inOutage:
		return l.TakeAll(checks...), nil
	case err == nil:
		out := make([]limit.Result, len(asked))
		var v limit.AllResult
		if v, err = all.Judge(&c.Taken, func(i int, res limit.Result) { out[i] = res }); err == nil {
			l.countAll(asked, out, &v)
			return v, nil
		}
		err = explain("take", err)
	}
	l.stats.ExactFailed.Add(1)
	if len(asked) == 1 {
		c.By = 0
	}
	return besideError(asked, c.By), err
}

// exactCalls sends the calls of TakeExact to Redis: those of one moment in one pipeline.
type exactCalls struct {
	l       *Limiter
	timeout time.Duration // of a pipeline
	mu      sync.Mutex
	waiting []*exactCall
	flights int // pipelines under way
	closed  bool
}

// exactCall is a call of TakeExact, and then its outcome.
type exactCall struct {
	checks []limit.Check
	redisstore.TakeRequest
	inOutage bool // Redis was not asked: an outage has begun while the call waited
	sent     bool // under the lock of exactCalls
	done     chan struct{}
}

const (
	// mostFlights is how many pipelines are under way at once. Calls that come meanwhile wait, so that
	// a burst does not use all connections of the client.
	mostFlights = 4
	// mostTogether is how many calls a pipeline carries. They take Redis some milliseconds.
	mostTogether = 128
	// exactPatience bounds a pipeline, as a multiple of CommandTimeout: a client may have to make a
	// connection first, which takes several round trips.
	exactPatience = 4
)

// do makes a call, and returns when it has its outcome or ctx ends. The error is that of the call.
func (x *exactCalls) do(ctx context.Context, c *exactCall) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("hybrid: take: %w", err)
	}
	c.By = -1
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return fmt.Errorf("hybrid: take: %w", limit.ErrClosed)
	}
	x.waiting = append(x.waiting, c)
	if x.flights < mostFlights {
		x.flights++
		x.l.driver.done.Go(x.fly)
	}
	x.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if x.withdraw(c) {
			return fmt.Errorf("hybrid: take: %w", ctx.Err())
		}
		select {
		case <-c.done: // both at once
		default:
			return fmt.Errorf("hybrid: take: it is not known whether the units were taken: %w", ctx.Err())
		}
	}
	switch {
	case c.Err == nil:
		return nil
	case errors.Is(c.Err, limit.ErrClosed):
		return fmt.Errorf("hybrid: take: %w", c.Err)
	}
	return explain("take", c.Err)
}

// withdraw drops a call that was not sent. It reports whether it did.
func (x *exactCalls) withdraw(c *exactCall) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.sent {
		return false
	}
	x.waiting = slices.DeleteFunc(x.waiting, func(w *exactCall) bool { return w == c })
	return true
}

// fly sends one pipeline after the other while calls wait.
func (x *exactCalls) fly() error {
	for {
		runtime.Gosched() // callers that ask at this moment come along
		list := x.next()
		if len(list) == 0 {
			return nil
		}
		learned := x.send(list)
		for _, c := range list {
			close(c.done)
		}
		for _, ev := range learned {
			select {
			case x.l.driver.requests <- func() reconcile.Event { return ev }:
			case <-x.l.driver.stop:
			}
		}
	}
}

// next returns the calls of the next pipeline. If there are none, the flight has ended.
func (x *exactCalls) next() (list []*exactCall) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := min(len(x.waiting), mostTogether)
	if n == 0 {
		x.flights--
		return nil
	}
	list = slices.Clone(x.waiting[:n])
	x.waiting = slices.Delete(x.waiting, 0, n)
	for _, c := range list {
		c.sent = true
	}
	return list
}

// send makes the calls, and passes on to the counters what Redis has answered. It returns what the
// machine is to know of that.
func (x *exactCalls) send(list []*exactCall) (learned []reconcile.Learned) {
	var requests []redisstore.TakeRequest
	var of []*exactCall
	for _, c := range list {
		if c.inOutage = slices.ContainsFunc(c.checks, func(q limit.Check) bool { return x.l.link.Degraded(q.Key) }); !c.inOutage {
			requests, of = append(requests, c.TakeRequest), append(of, c)
		}
	}
	if len(requests) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), x.timeout)
	defer cancel()
	sent := x.l.now()
	x.l.driver.store.TakeEach(ctx, requests)
	now := x.l.now()
	for i, c := range of {
		if c.TakeRequest = requests[i]; c.Err == nil {
			learned = x.learn(learned, c, sent, now)
		}
	}
	return learned
}

// learn passes on to the counters of a call what Redis has answered.
func (x *exactCalls) learn(learned []reconcile.Learned, c *exactCall, sent, now int64) []reconcile.Learned {
	for i, q := range c.checks {
		a := &c.Taken.Answers[i]
		of, out := x.l.table.Learn(q.Key, now, counter.Answer{
			State: a.State, Rule: q.Rule, ServerNow: int64(c.Taken.Now), Sent: sent,
			Announce: c.Taken.Booked && a.Units > 0,
		})
		if out != (counter.Outcome{}) {
			learned = append(learned, reconcile.Learned{Counter: of, Outcome: out, Sent: sent})
		}
	}
	return learned
}

// close ends the calls that wait. Further ones fail.
func (x *exactCalls) close() {
	x.mu.Lock()
	list := x.waiting
	x.waiting, x.closed = nil, true
	x.mu.Unlock()
	for _, c := range list {
		c.Err = limit.ErrClosed
		close(c.done)
	}
}
