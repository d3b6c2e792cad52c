package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// exactCalls sends the calls of TakeExact to Redis. A caller sends its call by itself. While mostFlights
// are under way to a server, further calls wait and share a pipeline.
type exactCalls struct {
	l       *Limiter
	timeout time.Duration // of a pipeline to a Redis that is near
	used    []atomic.Bool // by shard: the machine knows that it is asked

	mu      sync.Mutex
	servers map[string]*exactServer // by address; with a single server under the empty one
	closed  bool
	callers sync.WaitGroup // that send by themselves
}

// exactServer has the calls to one server.
type exactServer struct {
	waiting []*exactCall
	flights int // calls and pipelines under way; fewer than mostFlights: none waits
}

// exactCall is a call of TakeExact, and then its outcome.
type exactCall struct {
	checks []limit.Check
	redisstore.TakeRequest
	began    time.Duration // on the timer clock
	inOutage bool          // Redis was not asked: an outage has begun while the call waited
	hurried  bool          // the deadline of its context was that of the exchange
	done     chan struct{} // closed when it has its outcome, if it had to wait
}

const (
	// mostFlights is how many calls and pipelines to a server are under way at once. Calls that come
	// meanwhile wait, so that a burst does not use all connections of the client.
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
		n += arith.Of(c.checks[i].Rule).Buckets + 1
	}
	return n
}

// do makes a call, and returns when it has its outcome or ctx ends. The error is that of the call, and
// check by is its cause; -1: none is. If ctx ends first the outcome may still come, and c must not be
// read.
func (x *exactCalls) do(ctx context.Context, c *exactCall) (by int, err error) {
	if err := ctx.Err(); err != nil {
		return -1, fmt.Errorf("hybrid: take: %w", err)
	}
	c.began = pace()
	s, first := x.enter(c)
	switch {
	case s == nil:
		return -1, fmt.Errorf("hybrid: take: %w", limit.ErrClosed)
	case first:
		x.alone(ctx, s, c)
	default:
		if err := x.wait(ctx, c); err != nil {
			return -1, err
		}
	}
	switch {
	case c.Err == nil:
		return c.By, nil
	case errors.Is(c.Err, limit.ErrClosed):
		return -1, fmt.Errorf("hybrid: take: %w", c.Err)
	}
	x.l.stats.ExactFailed.Add(1)
	class, reason := redisstore.Classify(c.Err)
	switch {
	case class == redisstore.ClassUnavailable && ctx.Err() != nil:
		return -1, unknown(ctx.Err())
	case reason == "timeout" && c.hurried: // the connection has noticed it before ctx does
		return -1, unknown(context.DeadlineExceeded)
	}
	return c.By, explain("take", c.Err)
}

// unknown is the error of a call that was sent before its context has ended with err.
func unknown(err error) error {
	return fmt.Errorf("hybrid: take: it is not known whether the units were taken: %w", err)
}

// enter lets c wait for the next pipeline to its server s. If few are under way it is first: the caller
// sends c by itself. If the limiter is closed s is nil.
func (x *exactCalls) enter(c *exactCall) (s *exactServer, first bool) {
	server := x.l.driver.serverOf(c.checks[0].Key)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, false
	}
	if s = x.servers[server]; s == nil {
		s = new(exactServer)
		x.servers[server] = s
	}
	if s.flights == mostFlights {
		c.done = make(chan struct{})
		s.waiting = append(s.waiting, c)
		return s, false
	}
	s.flights++
	x.callers.Add(1)
	return s, true
}

// alone sends c in the goroutine of its caller. To hand it to another and back costs a fifth of the
// processor time of a call, where little else is to do.
func (x *exactCalls) alone(ctx context.Context, s *exactServer, c *exactCall) {
	defer x.callers.Done()
	events := x.send(ctx, []*exactCall{c})
	x.mu.Lock()
	if len(s.waiting) > 0 {
		x.l.driver.done.Go(func() error { return x.fly(s) })
	} else {
		s.flights--
	}
	x.mu.Unlock()
	x.tell(events)
}

// wait waits for the outcome of c, or until ctx ends.
func (x *exactCalls) wait(ctx context.Context, c *exactCall) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	if x.withdraw(c) {
		return fmt.Errorf("hybrid: take: %w", ctx.Err())
	}
	select {
	case <-c.done: // both at once
		return nil
	default:
		x.l.stats.ExactFailed.Add(1)
		return unknown(ctx.Err())
	}
}

// withdraw drops a call that was not sent. It reports whether it did.
func (x *exactCalls) withdraw(c *exactCall) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.servers {
		if i := slices.Index(s.waiting, c); i >= 0 {
			s.waiting = slices.Delete(s.waiting, i, i+1)
			return true
		}
	}
	return false
}

// fly sends one pipeline after the other while calls wait.
func (x *exactCalls) fly(s *exactServer) error {
	for {
		list := x.next(s)
		if len(list) == 0 {
			return nil
		}
		events := x.send(context.Background(), list)
		for _, c := range list {
			close(c.done)
		}
		x.tell(events)
	}
}

// tell gives events to the machine.
func (x *exactCalls) tell(events []reconcile.Event) {
	for _, ev := range events {
		x.l.driver.request(func() reconcile.Event { return ev })
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
		list = append(list, c)
	}
	if s.waiting = slices.Delete(s.waiting, 0, len(list)); len(list) == 0 {
		s.flights--
	}
	return list
}

// send makes the calls until ctx ends, and passes on to the counters what Redis has answered. It returns
// what the machine is to know of that.
func (x *exactCalls) send(ctx context.Context, list []*exactCall) (events []reconcile.Event) {
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
	own, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	sent := x.l.now()
	x.l.driver.store.TakeEach(ctx, requests)
	now := x.l.now()
	for i, c := range of {
		c.hurried = deadline.Equal(own)
		if c.TakeRequest = requests[i]; c.Err == nil {
			events = x.learn(events, c, sent, now)
		}
	}
	return events
}

// learn passes on to the counters of a call what Redis has answered.
func (x *exactCalls) learn(events []reconcile.Event, c *exactCall, sent, now int64) []reconcile.Event {
	for i, q := range c.checks {
		a, own := &c.Taken.Answers[i], int64(0)
		if c.Taken.Booked && a.Units > 0 {
			own = q.N
		}
		of, out := x.l.table.Learn(q.Key, now, report.Answer{
			State: a.State, Rule: q.Rule, ServerNow: int64(c.Taken.Now), Sent: sent,
			Announce: own > 0, Own: own,
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
			c.Err = limit.ErrClosed
			close(c.done)
		}
		s.waiting = nil
	}
}
