package table

import (
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// lookAgain is the longest that a waiter sleeps before it looks again: a reset may
// have made room, or the fleet may have changed.
const lookAgain = time.Second

// Lines lets callers wait for units of a key in the order in which they came.
// The zero Lines is ready to use, and safe for concurrent use.
//
// Only the first waiter in a line asks the limiter. Its units of a funnel are booked
// ahead, so that all other callers, on other nodes too, come after it. Units of a
// window cannot be booked ahead: they are kept from other callers of this process
// until there is room. When the first waiter gives up, all that it has booked is
// handed back, because no other waiter of this line has booked behind it.
type Lines struct {
	waiting atomic.Int64 // callers in all lines

	mu     sync.Mutex
	lines  map[ident]*line
	closed chan struct{} // closed by Close; made when first needed
	over   bool
	gone   sync.WaitGroup // of the waiters
}

// line is the waiters for one key.
type line struct {
	turns list.List // of *turn; the first is being served
	units uint64    // units that are not booked yet; may wrap, and back
}

// turn is one waiter.
type turn struct {
	n     int64         // units that are not booked yet
	first bool          // the line was empty
	mine  chan struct{} // closed when the waiter becomes the first
	at    *list.Element
}

// Asker is what a line calls to get units.
type Asker struct {
	// Reserve books units, see [Table.Reserve].
	Reserve func(Terms) limit.Reservation
	// Estimate returns after how many ns, at the least, n units can have been
	// admitted after others that ask for ahead units in all.
	Estimate func(ahead, n int64) int64
	// Unclaim ends the claim of a reservation.
	Unclaim func()
	// Patience is for how long the first waiter in a line leaves other nodes their part
	// of a window, see [Terms].Share.
	Patience time.Duration
}

// Waiting returns how many callers wait, and in how many lines.
func (ls *Lines) Waiting() (callers, lines int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return int(ls.waiting.Load()), len(ls.lines)
}

// Wait returns nil as soon as n units of key may be used, at least 1 and no
// more than the limit. It returns a [*limit.WaitError] at once if that would
// take longer than ctx lasts. It returns the error of ctx, or [limit.ErrClosed], if
// the waiting ends before; then what was booked has been handed back.
func (ls *Lines) Wait(ctx context.Context, key string, rule *limit.Rule, n int64, ask Asker) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n > rule.Limit() {
		return &limit.WaitError{Key: key, Rule: rule, N: n, Need: limit.Never, Left: untilDeadline(ctx)}
	}
	if ls.waiting.Load() == 0 && ask.Reserve(Terms{MaxDelay: -1, Share: true}).OK() {
		return nil
	}
	id := ident{alg: rule.Algorithm(), name: rule.Name(), key: key}
	late := func(need int64) error {
		left := untilDeadline(ctx)
		if time.Duration(need) <= left {
			return nil
		}
		return &limit.WaitError{Key: key, Rule: rule, N: n, Need: time.Duration(need), Left: left}
	}
	ahead, me, err := ls.join(id, n)
	if err != nil {
		return err
	}
	defer ls.leave(id, me)
	if !me.first {
		if err := late(ask.Estimate(ahead, n)); err != nil {
			return err
		}
		if err := ls.pause(ctx, me.mine, math.MaxInt64); err != nil {
			return err
		}
	}
	return ls.serve(ctx, id, me, ask, rule.Horizon(), late)
}

// serve waits for the units of the first waiter in a line. Units that it claims of a
// window it gets within one window, unless other nodes take them. So it ends its claim
// after two, not to keep other callers of this node from what it will not get.
func (ls *Lines) serve(ctx context.Context, id ident, me *turn, ask Asker, window time.Duration, late func(int64) error) error {
	if id.alg == limit.AlgorithmFunnel {
		ls.booked(id, me)
	} else {
		defer ask.Unclaim()
	}
	for waited := time.Duration(0); ; {
		terms := Terms{MaxDelay: int64(untilDeadline(ctx)), Claim: waited/2 <= window, Share: waited < ask.Patience}
		if !terms.Claim {
			ask.Unclaim()
		}
		r := ask.Reserve(terms)
		if r.OK() {
			err := ls.sleep(ctx, r.Delay(), ask)
			if err != nil {
				r.Cancel()
			}
			return err
		}
		if err := late(int64(r.Delay())); err != nil {
			return err
		}
		d := min(r.Delay(), lookAgain)
		if err := ls.pause(ctx, nil, d); err != nil {
			return err
		}
		waited += d
	}
}

// sleep waits until units that were booked ahead may be used: for d, or less if
// units were handed back meanwhile or the key was reset.
func (ls *Lines) sleep(ctx context.Context, d time.Duration, ask Asker) error {
	for d > 0 {
		step := min(d, lookAgain)
		if err := ls.pause(ctx, nil, step); err != nil {
			return err
		}
		if d -= step; d > 0 {
			d = min(d, time.Duration(ask.Estimate(0, 0)))
		}
	}
	return nil
}

// untilDeadline returns how long it is until the deadline of ctx.
func untilDeadline(ctx context.Context) time.Duration {
	at, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	return max(clock.Until(at), 0)
}

// join enters the line of a key. ahead is the number of units that earlier waiters
// have not booked yet.
func (ls *Lines) join(id ident, n int64) (ahead int64, me *turn, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.over {
		return 0, nil, limit.ErrClosed
	}
	if ls.lines == nil {
		ls.lines, ls.closed = map[ident]*line{}, make(chan struct{})
	}
	l := ls.lines[id]
	if l == nil {
		l = &line{}
		ls.lines[id] = l
	}
	me = &turn{n: n, first: l.turns.Len() == 0, mine: make(chan struct{})}
	ahead = int64(min(l.units, maxPart))
	me.at = l.turns.PushBack(me)
	l.units += uint64(n)
	ls.waiting.Add(1)
	ls.gone.Add(1)
	return ahead, me, nil
}

// booked notes that the units of me are about to be booked in the counter.
func (ls *Lines) booked(id ident, me *turn) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.lines[id].units -= uint64(me.n)
	me.n = 0
}

// leave takes me out of its line. If it was the first, it wakes the next waiter.
func (ls *Lines) leave(id ident, me *turn) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.lines[id]
	first := l.turns.Front() == me.at
	l.turns.Remove(me.at)
	l.units -= uint64(me.n)
	if next := l.turns.Front(); next == nil {
		delete(ls.lines, id)
	} else if first {
		close(next.Value.(*turn).mine)
	}
	ls.waiting.Add(-1)
	ls.gone.Done()
}

// pause returns nil when ready is closed or d has passed, and an error if the
// waiting is over before.
func (ls *Lines) pause(ctx context.Context, ready <-chan struct{}, d time.Duration) error {
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
	case <-ls.closed:
		return limit.ErrClosed
	}
}

// Close ends the waiting of all, and returns when they have gone. Later callers do
// not wait at all.
func (ls *Lines) Close() {
	ls.mu.Lock()
	if ls.lines == nil {
		ls.lines, ls.closed = map[ident]*line{}, make(chan struct{})
	}
	if !ls.over {
		ls.over = true
		close(ls.closed)
	}
	ls.mu.Unlock()
	ls.gone.Wait()
}
