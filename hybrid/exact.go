package hybrid

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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
// about the arguments or the key means that they were not. The errors are that of [Limiter.CheckRule],
// [limit.ErrInvalidN], [limit.ErrClosed], an [*UnavailableError], the error of ctx, and a
// [*limit.KeyError] if Redis cannot use the key. Give ctx the time that the caller can wait: without it
// a call may wait for up to 8 times [Options].CommandTimeout, longer if Redis is far away.
//
// Units that are refunded count for Redis until they are reported, within [Options].SyncInterval.
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
	if l.inOutage(checks) {
		return l.TakeAll(checks...), true
	}
	v, now := decision.None(), l.now()
	for i := range checks {
		q := &checks[i]
		if res, refused := l.table.Refuses(q.Key, q.Rule, q.Units(), now); refused {
			decision.Add(&v, i, q.Rule, res)
		}
	}
	if v.Allowed { // none refuses, or only dry runs do: Redis counts the others
		return v, len(checks) == 1 && v.WouldRefuse && l.counted(checks, &v)
	}
	return v, l.counted(checks, &v)
}

// inOutage reports whether Redis cannot be reached for any of the checks. If it can for some, it is
// asked: else the fallback would decide keys that Redis decides for other callers.
func (l *Limiter) inOutage(checks []limit.Check) bool {
	for i := range checks {
		if !l.link.Degraded(checks[i].Key) {
			return false
		}
	}
	return true
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
	c := &exactCall{checks: asked, TakeRequest: redisstore.TakeRequest{Mode: all.Mode, Asks: all.Asks, By: -1}, done: make(chan struct{})}
	by, err := l.driver.exact.do(ctx, c)
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
		l.stats.ExactFailed.Add(1)
	}
	if len(asked) == 1 {
		by = 0
	}
	return besideError(asked, by), err
}

// exactCalls sends the calls of TakeExact to Redis: those of one moment in one pipeline for each server.
type exactCalls struct {
	l       *Limiter
	timeout time.Duration // of a pipeline to a Redis that is near
	used    []atomic.Bool // by shard: the machine knows that it is asked

	mu      sync.Mutex
	servers map[string]*exactServer // by address; with a single server under the empty one
	closed  bool
}

// exactServer has the calls to one server.
type exactServer struct {
	waiting []*exactCall
	flights int // pipelines under way
}

// exactCall is a call of TakeExact, and then its outcome.
type exactCall struct {
	checks []limit.Check
	redisstore.TakeRequest
	began    time.Duration // on the timer clock
	inOutage bool          // Redis was not asked: an outage has begun while the call waited
	sent     bool          // under the lock of exactCalls
	done     chan struct{}
}

const (
	// mostFlights is how many pipelines to a server are under way at once. Calls that come meanwhile
	// wait, so that a burst does not use all connections of the client.
	mostFlights = 4
	// mostBuckets is how many buckets the calls of a pipeline may read, if it carries several. They take
	// Redis some milliseconds.
	mostBuckets = 1500
	// exactPatience bounds a pipeline, as a multiple of CommandTimeout: a client may have to make a
	// connection first, which takes several round trips.
	exactPatience = 4
)

// errWaited is the outcome of a call that was not sent, because others before it had no answer.
var errWaited = fmt.Errorf("hybrid: it was not sent, because redis has not answered earlier calls: %w", context.DeadlineExceeded)

// buckets returns how many buckets Redis reads for c.
func (c *exactCall) buckets() (n int) {
	for i := range c.checks {
		n += c.checks[i].Rule.Buckets() + 1
	}
	return n
}

// do makes a call, and returns when it has its outcome or ctx ends. The error is that of the call, and
// check by is its cause; -1: none is. If ctx ends first the outcome still comes, and c must not be read.
func (x *exactCalls) do(ctx context.Context, c *exactCall) (by int, err error) {
	if err := ctx.Err(); err != nil {
		return -1, fmt.Errorf("hybrid: take: %w", err)
	}
	c.began = pace()
	if !x.enter(c) {
		return -1, fmt.Errorf("hybrid: take: %w", limit.ErrClosed)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if x.withdraw(c) {
			return -1, fmt.Errorf("hybrid: take: %w", ctx.Err())
		}
		select {
		case <-c.done: // both at once
		default:
			x.l.stats.ExactFailed.Add(1)
			return -1, fmt.Errorf("hybrid: take: it is not known whether the units were taken: %w", ctx.Err())
		}
	}
	switch {
	case c.Err == nil:
		return c.By, nil
	case errors.Is(c.Err, limit.ErrClosed):
		return -1, fmt.Errorf("hybrid: take: %w", c.Err)
	}
	x.l.stats.ExactFailed.Add(1)
	return c.By, explain("take", c.Err)
}

// enter lets c wait for the next pipeline to its server. It reports whether it did: not if closed.
func (x *exactCalls) enter(c *exactCall) bool {
	server := x.l.driver.serverOf(c.checks[0].Key)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return false
	}
	s := x.servers[server]
	if s == nil {
		s = new(exactServer)
		x.servers[server] = s
	}
	if s.waiting = append(s.waiting, c); s.flights < mostFlights {
		s.flights++
		x.l.driver.done.Go(func() error { return x.fly(s) })
	}
	return true
}

// withdraw drops a call that was not sent. It reports whether it did.
func (x *exactCalls) withdraw(c *exactCall) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.sent {
		return false
	}
	for _, s := range x.servers {
		s.waiting = slices.DeleteFunc(s.waiting, func(w *exactCall) bool { return w == c })
	}
	return true
}

// fly sends one pipeline after the other while calls wait.
func (x *exactCalls) fly(s *exactServer) error {
	for {
		runtime.Gosched() // callers that ask at this moment come along
		list := x.next(s)
		if len(list) == 0 {
			return nil
		}
		events := x.send(list)
		for _, c := range list {
			close(c.done)
		}
		for _, ev := range events {
			x.tell(ev)
		}
	}
}

// tell gives an event to the machine.
func (x *exactCalls) tell(ev reconcile.Event) {
	select {
	case x.l.driver.requests <- func() reconcile.Event { return ev }:
	case <-x.l.driver.stop:
	}
}

// next returns the calls of the next pipeline. If there are none, the flight has ended.
func (x *exactCalls) next(s *exactServer) (list []*exactCall) {
	x.mu.Lock()
	defer x.mu.Unlock()
	buckets := 0
	for _, c := range s.waiting {
		if buckets += c.buckets(); len(list) > 0 && buckets > mostBuckets {
			break
		}
		c.sent = true
		list = append(list, c)
	}
	if s.waiting = slices.Delete(s.waiting, 0, len(list)); len(list) == 0 {
		s.flights--
	}
	return list
}

// send makes the calls, and passes on to the counters what Redis has answered. It returns what the
// machine is to know of that.
func (x *exactCalls) send(list []*exactCall) (events []reconcile.Event) {
	var requests []redisstore.TakeRequest
	var of []*exactCall
	timeout := max(x.timeout, time.Duration(x.l.driver.patience.Load()))
	for _, c := range list {
		switch {
		case x.l.inOutage(c.checks):
			c.inOutage = true
		case pace()-c.began > timeout:
			c.Err = errWaited
		default:
			requests, of = append(requests, c.TakeRequest), append(of, c)
		}
		if shard := x.l.driver.store.Keyspace().Shard(c.checks[0].Key); !x.used[shard].Load() && !x.used[shard].Swap(true) {
			events = append(events, reconcile.Asked{Shard: shard})
		}
	}
	if len(requests) == 0 {
		return events
	}
	x.l.stats.ExactAsked.Add(uint64(len(requests)))
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	sent := x.l.now()
	x.l.driver.store.TakeEach(ctx, requests)
	now := x.l.now()
	for i, c := range of {
		if c.TakeRequest = requests[i]; c.Err == nil {
			events = x.learn(events, c, sent, now)
		}
	}
	return events
}

// learn passes on to the counters of a call what Redis has answered.
func (x *exactCalls) learn(events []reconcile.Event, c *exactCall, sent, now int64) []reconcile.Event {
	for i, q := range c.checks {
		a := &c.Taken.Answers[i]
		of, out := x.l.table.Learn(q.Key, now, counter.Answer{
			State: a.State, Rule: q.Rule, ServerNow: int64(c.Taken.Now), Sent: sent,
			Announce: c.Taken.Booked && a.Units > 0,
		})
		if out != (counter.Outcome{}) {
			events = append(events, reconcile.Learned{Counter: of, Outcome: out, Sent: sent})
		}
	}
	return events
}

// close ends the calls that wait. Further ones fail.
func (x *exactCalls) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, s := range x.servers {
		for _, c := range s.waiting {
			c.sent, c.Err = true, limit.ErrClosed
			close(c.done)
		}
		s.waiting = nil
	}
}
