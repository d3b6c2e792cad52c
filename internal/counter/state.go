package counter

import (
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// kind is the algorithm of a counter.
type kind uint8

const (
	leakyBuckets kind = iota
	windows
	logs
)

// A counter is allocated together with its state, which saves a pointer and a cache miss: each
// *Counter points to the first field of one of these.
type (
	leakyCounter struct {
		Counter
		bucket algorithm.LeakyBucket
	}
	windowCounter struct {
		Counter
		window algorithm.Window
	}
	logCounter struct {
		Counter
		log algorithm.SlidingLog
	}
)

// newCounter returns a counter of the algorithm of a rule.
func newCounter(rule *limit.Rule, now int64, clock algorithm.Clock) (c *Counter) {
	switch {
	case algorithm.IsWindow(rule):
		w := new(windowCounter)
		w.window.Begin(arith.Of(rule), now, clock)
		c, w.counts = &w.Counter, windows
	case arith.Of(rule).Algorithm == arith.SlidingLog:
		l := new(logCounter)
		c, l.counts = &l.Counter, logs
	default:
		c = &new(leakyCounter).Counter
	}
	c.latestRule.Store(rule)
	return c
}

// state returns the state of c, see [algorithm.State].
func (c *Counter) state() algorithm.State {
	switch p := unsafe.Pointer(c); c.counts {
	case windows:
		return &(*windowCounter)(p).window
	case logs:
		return &(*logCounter)(p).log
	default:
		return &(*leakyCounter)(p).bucket
	}
}

// replica returns the state of c, which is no log, as a copy of what Redis counts, see [algorithm.Replica].
func (c *Counter) replica() algorithm.Replica {
	if w := c.window(); w != nil {
		return w
	}
	return c.leaky()
}

// leaky returns the leaky bucket, nil if c counts by another algorithm. It is for what only a leaky
// bucket can do: be booked ahead, and have debts.
func (c *Counter) leaky() *algorithm.LeakyBucket {
	if c.counts != leakyBuckets {
		return nil
	}
	return &(*leakyCounter)(unsafe.Pointer(c)).bucket
}

// window returns the window, nil if c counts by another algorithm. It is for what only a window
// needs: to move on with time, by Redis' clock.
func (c *Counter) window() *algorithm.Window {
	if c.counts != windows {
		return nil
	}
	return &(*windowCounter)(unsafe.Pointer(c)).window
}

// viewLocked returns when the leaky bucket will be empty; the zero time if c has none.
func (c *Counter) viewLocked() (view arith.Span) {
	if f := c.leaky(); f != nil {
		view = f.View
	}
	return view
}

// unsyncedUnits returns the units that Redis has not acknowledged.
func (c *Counter) unsyncedUnits() int64 {
	if c.link() == nil {
		return 0
	}
	return c.pendUnits() + c.sentUnits()
}

// pendUnits returns the units that were not sent to Redis yet.
func (c *Counter) pendUnits() int64 {
	if c.counts == logs {
		return 0
	}
	pending, _ := c.replica().Units()
	return pending
}

// sentUnits returns the units that were sent to Redis, which has not acknowledged them.
func (c *Counter) sentUnits() int64 {
	_, sent := c.replica().Units()
	return sent
}

// hasReturns reports whether there are refunds that Redis has not acknowledged.
func (c *Counter) hasReturns() bool { return c.link() != nil && c.replica().HasReturns() }

// rollLocked moves a window on to now, by the known offset of Redis' clock, and counts the units
// that have expired without being reported.
func (c *Counter) rollLocked(now int64) {
	c.followClockLocked(now)
	if w := c.window(); w != nil {
		c.expiredLocked(w.Roll(c.rule(), now, modeMultiplier(c.mode())))
	}
}

// expiredLocked adds pending units that have expired without being reported to the count of the
// link.
func (c *Counter) expiredLocked(units int64) {
	if units > 0 && c.link() != nil {
		c.link().Expired.Add(units)
	}
}

// followClockLocked applies what is known of Redis' clock to a window, or of the wall clock to a calendar.
func (c *Counter) followClockLocked(now int64) {
	if w := c.window(); w != nil {
		w.Follow(c.rule(), now, c.last, modeMultiplier(c.mode()), c.clock())
	}
}

// clock returns what is known of Redis' clock. Without a link our own clock is used, and for a calendar the
// wall clock.
func (c *Counter) clock() (k algorithm.Clock) {
	p := c.part
	if p == nil {
		return algorithm.Clock{Sure: true, Off: c.wallLocked()}
	}
	k = p.reading()
	if k.WentBack = c.freshAt < p.backAt.Load(); k.WentBack {
		k.BackTo = p.backTo.Load()
	}
	return k
}

// sourceLocked returns the source of a decision of c.
func (c *Counter) sourceLocked() limit.Source {
	switch {
	case c.link() == nil:
		return limit.SourceLocal
	case modeDegraded(c.mode()):
		return limit.SourceDegraded
	case !c.isAnsweredLocked():
		return limit.SourceUnsynced
	}
	return limit.SourceSynced
}

// ceilingLocked returns the level up to which Redis books units of an outage, and up to which units
// can be charged. It is never lower than what waiting reservations need. See [Link.SetMaxDebt] for
// maxDebt.
func (c *Counter) ceilingLocked(now int64, maxDebt time.Duration) arith.Span {
	r, debt := c.rule(), arith.Span{NS: max(int64(maxDebt), 0)}
	if maxDebt == 0 {
		debt = r.Full
	}
	return algorithm.Earlier(r.Add(r.Full, debt), mostDebt).Max(r.Sub(c.leastLocked(now), arith.Span{NS: now}))
}

// mostDebt is the longest time in which a debt may leak. Redis counts time up to a bound. It would
// book units that leak after the bound, but not count them.
var mostDebt = arith.Span{NS: int64(arith.MaxWindow)}

// indebtLocked records n units that were admitted as debt, if there is an outage.
func (c *Counter) indebtLocked(n int64) {
	if f := c.leaky(); f != nil && c.link() != nil && modeDegraded(c.mode()) {
		f.Indebt(n)
		c.forgiveLocked(f)
	}
}

// forgiveLocked drops units of an outage that Redis would forgive whatever it counts: those that
// would leak later than mostDebt even in a bucket without other units. It does so only at
// MultiplierOpen, where no reservation waits, because everything is admitted.
func (c *Counter) forgiveLocked(f *algorithm.LeakyBucket) {
	if modeMultiplier(c.mode()) != MultiplierOpen {
		return
	}
	if n := f.ForgiveLate(c.rule(), c.rule().Add(arith.Span{NS: c.last}, mostDebt)); n > 0 {
		c.link().Forgiven.Add(n)
	}
}
