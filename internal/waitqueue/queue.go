// Package waitqueue has callers wait for units of a key in the order in which they came.
package waitqueue

import (
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// lookAgain is the longest that a waiter sleeps before it looks again: a reset may
// have made room, or the fleet may have changed.
const lookAgain = time.Second

// Queues are the waiters for all keys, in one queue for each key. The zero Queues is ready to
// use, and safe for concurrent use.
//
// Only the first waiter in a queue asks the limiter. Its units of a leaky bucket are booked
// ahead, so that all other callers, on other nodes too, come after it. Units of a
// window cannot be booked ahead: they are kept from other callers of this process
// until there is room. When the first waiter gives up, all that it has booked is
// handed back, because no other waiter of this queue has booked behind it.
type Queues struct {
	waiting atomic.Int64 // callers in all queues

	mu     sync.Mutex // protects all below but gone
	queues map[ident]*queue
	closed chan struct{} // closed by Close; made when first needed
	over   bool
	gone   sync.WaitGroup // of the waiters
}

// ident tells queues apart: by key, and by algorithm and name of the rule.
type ident struct {
	alg  arith.Algorithm
	name string
	key  string
}

// queue is the waiters for one key.
type queue struct {
	waiters list.List // of *waiter; the first is being served
	units   uint64    // units that are not booked yet; may wrap, and back
}

// waiter is one caller who waits.
type waiter struct {
	n     int64         // units that are not booked yet
	first bool          // the queue was empty
	mine  chan struct{} // closed when the waiter becomes the first
	at    *list.Element
}

// maxAhead bounds the units of earlier waiters that a waiter is told of, so that sums of two
// never wrap.
const maxAhead = 1 << 60

// Limiter is what a queue calls to get units of a key.
type Limiter struct {
	// Reserve books units if the terms allow it. Delay says when they may be used or, if they
	// are not booked, when to ask again.
	Reserve func(counter.Terms) limit.Reservation
	// Estimate returns after how many ns, at the least, n units can have been
	// admitted after others that ask for ahead units in all.
	Estimate func(ahead, n int64) int64
	// Unclaim ends the claim of a reservation.
	Unclaim func()
	// Patience is for how long the first waiter in a queue leaves other nodes their part
	// of a window, see [counter.Terms].Share.
	Patience time.Duration
}

// Waiting returns how many callers wait, and in how many queues.
func (qs *Queues) Waiting() (callers, queues int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return int(qs.waiting.Load()), len(qs.queues)
}

// Wait returns nil as soon as n units of key may be used, at least 1 and no
// more than the limit. It returns a [*limit.WaitError] at once if that would
// take longer than ctx lasts. It returns the error of ctx, or [limit.ErrClosed], if
// the waiting ends before; then what was booked has been handed back.
func (qs *Queues) Wait(ctx context.Context, key string, rule *limit.Rule, n int64, ask Limiter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n > rule.Limit() {
		return &limit.WaitError{Key: key, Rule: rule, Need: limit.Never}
	}
	if qs.waiting.Load() == 0 && ask.Reserve(counter.Terms{MaxDelay: -1, Share: true}).OK() {
		return nil
	}
	id := ident{alg: arith.Of(rule).Algorithm, name: rule.Name(), key: key}
	late := func(need int64) error {
		left := decision.TimeLeft(ctx)
		if time.Duration(need) <= left {
			return nil
		}
		return &limit.WaitError{Key: key, Rule: rule, Need: time.Duration(need)}
	}
	ahead, me, err := qs.join(id, n)
	if err != nil {
		return err
	}
	defer qs.leave(id, me)
	if !me.first {
		if err := late(ask.Estimate(ahead, n)); err != nil {
			return err
		}
		if err := qs.pause(ctx, me.mine, math.MaxInt64); err != nil {
			return err
		}
	}
	return qs.serve(ctx, id, me, ask, arith.Of(rule).Horizon(), late)
}

// serve waits for the units of the first waiter in a queue. Units that it claims of a
// window it gets within one window, unless other nodes take them. So it ends its claim
// after two, not to keep other callers of this node from what it will not get.
func (qs *Queues) serve(ctx context.Context, id ident, me *waiter, ask Limiter, window time.Duration, late func(int64) error) error {
	if id.alg == arith.TokenBucket {
		qs.booked(id, me)
	} else {
		defer ask.Unclaim()
	}
	for waited := time.Duration(0); ; {
		terms := counter.Terms{MaxDelay: int64(decision.TimeLeft(ctx)), Claim: waited/2 <= window, Share: waited < ask.Patience}
		if !terms.Claim {
			ask.Unclaim()
		}
		r := ask.Reserve(terms)
		if r.OK() {
			err := qs.sleep(ctx, r.Delay(), ask)
			if err != nil {
				_ = r.Cancel(ctx) // in memory there is no error
			}
			return err
		}
		if err := late(int64(r.Delay())); err != nil {
			return err
		}
		d := min(r.Delay(), lookAgain)
		if err := qs.pause(ctx, nil, d); err != nil {
			return err
		}
		waited += d
	}
}

// sleep waits until units that were booked ahead may be used: for d, or less if
// units were handed back meanwhile or the key was reset.
func (qs *Queues) sleep(ctx context.Context, d time.Duration, ask Limiter) error {
	for d > 0 {
		step := min(d, lookAgain)
		if err := qs.pause(ctx, nil, step); err != nil {
			return err
		}
		if d -= step; d > 0 {
			d = min(d, time.Duration(ask.Estimate(0, 0)))
		}
	}
	return nil
}

// join enters the queue of a key. ahead is the number of units that earlier waiters
// have not booked yet.
func (qs *Queues) join(id ident, n int64) (ahead int64, me *waiter, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.over {
		return 0, nil, limit.ErrClosed
	}
	if qs.queues == nil {
		qs.queues, qs.closed = map[ident]*queue{}, make(chan struct{})
	}
	q := qs.queues[id]
	if q == nil {
		q = &queue{}
		qs.queues[id] = q
	}
	me = &waiter{n: n, first: q.waiters.Len() == 0, mine: make(chan struct{})}
	ahead = int64(min(q.units, maxAhead))
	me.at = q.waiters.PushBack(me)
	q.units += uint64(n)
	qs.waiting.Add(1)
	qs.gone.Add(1)
	return ahead, me, nil
}

// booked notes that the units of me are about to be booked in the counter.
func (qs *Queues) booked(id ident, me *waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.queues[id].units -= uint64(me.n)
	me.n = 0
}

// leave takes me out of its queue. If it was the first, it wakes the next waiter.
func (qs *Queues) leave(id ident, me *waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.queues[id]
	first := q.waiters.Front() == me.at
	q.waiters.Remove(me.at)
	q.units -= uint64(me.n)
	if next := q.waiters.Front(); next == nil {
		delete(qs.queues, id)
	} else if first {
		close(next.Value.(*waiter).mine)
	}
	qs.waiting.Add(-1)
	qs.gone.Done()
}

// pause returns nil when ready is closed or d has passed, and an error if the
// waiting is over before.
func (qs *Queues) pause(ctx context.Context, ready <-chan struct{}, d time.Duration) error {
	var passed <-chan time.Time
	if d < math.MaxInt64 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-ready:
		return nil
	case <-passed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-qs.closed:
		return limit.ErrClosed
	}
}

// Close ends the waiting of all, and returns when they have gone. Later callers do
// not wait at all.
func (qs *Queues) Close() {
	qs.mu.Lock()
	if qs.queues == nil {
		qs.queues, qs.closed = map[ident]*queue{}, make(chan struct{})
	}
	if !qs.over {
		qs.over = true
		close(qs.closed)
	}
	qs.mu.Unlock()
	qs.gone.Wait()
}
