package counter

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Booking is what a reservation holds in a counter.
//
// When a booking of a leaky bucket is cancelled, it would be wrong to just lower the level by its
// units. Other bookings keep their times, so new callers would be admitted at the same times
// once more. Let x be the time at which a bucket is empty that has only the waiting bookings, each
// when it is due. As long as the level does not fall below x, a new caller finds as much of the
// capacity taken as the waiting bookings will use. What cannot be refunded because of them is
// refunded when they are cancelled, too, less what may have leaked by then: see history.owed.
//
// In a shared bucket, only the other nodes know which of their bookings wait. A booking keeps the
// level above the capacity until it is due, and no node lowers the level further while a booking
// may wait. So no booking waits if the level is within the capacity. If the level is above it, Redis
// says until when bookings wait. While they do, only the end of the queue is refunded, and only if no
// other node has booked behind or between.
type Booking struct {
	n         int64       // units
	made, due int64       // when they were booked, and when they may be used, ns
	at        arith.Span  // due before it was rounded up, and moved with the level by answers of Redis
	end       arith.Span  // when the last of them leaves, if nothing is refunded that was booked before them
	rule      *arith.Rule // of at and end
	history   *history    // of the counter when they were booked
	refunded  arith.Span  // its refunded then
	resets    uint32      // history.resets when they were booked
	mixed     bool        // others have changed the level since, and may have booked behind
}

// times returns at and end by a rule. If it is not of the same shape, they are estimated, and rather too early.
func (b *Booking) times(r *arith.Rule) (at, end arith.Span) {
	if b.rule.SameShape(r) {
		return b.at, b.end
	}
	at = arith.Span{NS: b.due - 1}
	return at, arith.Span{NS: at.NS + min(r.Cost(b.n).NS, b.rule.Cost(b.n).NS)}
}

// stillLocked returns how many units of b still count, and the time that they take to leak. The others
// have leaked, or left a window: to refund them would subtract newer units in their place. A unit
// that has leaked in part counts as one. It is never more than what counts. It may be less, by what has
// leaked since b was due, if units were refunded since or the rule has become another.
func (c *Counter) stillLocked(now int64, b *Booking) (n int64, cost arith.Span) {
	r := c.rule()
	at, end := b.times(r)
	at, cost = algorithm.Earlier(at, arith.Span{NS: b.due}), r.Cost(b.n)
	switch {
	case b.resets != c.past().resets:
		return 0, arith.Span{}
	case c.leaky() == nil && now >= end.NS:
		return 0, arith.Span{}
	case c.leaky() == nil, b.due >= now:
		return b.n, cost
	case modeDegraded(c.mode()) && c.since != 0 && c.since <= b.made: // to be reported after the outage
		return b.n, cost
	}
	if b.rule.SameShape(r) {
		end = r.Add(at, cost).Max(c.endLocked(b))
	}
	if left := r.Sub(end, arith.Span{NS: now}); left.Less(cost) {
		return min(b.n, r.WholeUp(left)), left
	}
	return b.n, cost
}

// endLocked returns when the last unit of b leaves a leaky bucket, by what was refunded since; the zero time if that
// is not known. The rule is of the shape of that of b.
func (c *Counter) endLocked(b *Booking) arith.Span {
	if c.history == nil || b.history != c.history { // it, or the counter, was dropped meanwhile
		return arith.Span{}
	}
	return c.rule().Sub(c.rule().Add(b.end, b.refunded), c.history.refunded)
}

// noteBookingLocked records that n units were booked with the answer res.
func (c *Counter) noteBookingLocked(now, n int64, res limit.Result) *Booking {
	r := c.rule()
	b := &Booking{n: n, made: now, due: now + int64(res.RetryAfter), at: arith.Span{NS: now}, end: arith.Span{NS: now + int64(res.ResetAfter)}, rule: r}
	if n == 0 {
		return b
	}
	h := c.keepHistoryLocked(b.end.NS) // it counts resets and refunds until then
	b.history, b.refunded, b.resets = h, h.refunded, h.resets
	if c.leaky() == nil {
		return b
	}
	if b.end = c.viewLocked(); b.due > now {
		b.at = r.Sub(b.end, r.Full)
	}
	c.dropDueLocked(now)
	k := len(h.booked) // a refund may have made room before others
	for ; k > 0 && h.booked[k-1].due > b.due; k-- {
	}
	if k < len(h.booked) || modeMultiplier(c.mode()) != 1 { // the level does not say how long they count: at least so long
		b.end = r.Add(b.at, r.Cost(n))
	}
	if b.due > now {
		h.booked = slices.Insert(h.booked, k, b)
	}
	return b
}

// dropDueLocked drops the bookings that are due: nobody waits for them.
func (c *Counter) dropDueLocked(now int64) {
	if h := c.history; h != nil {
		h.booked = slices.DeleteFunc(h.booked, func(b *Booking) bool { return b.due <= now })
	}
}

// leastLocked returns the time before which the leaky bucket must not be empty, because of waiting
// bookings.
func (c *Counter) leastLocked(now int64) (least arith.Span) {
	r := c.rule()
	for _, b := range c.past().booked {
		switch at, _ := b.times(r); {
		case b.due <= now:
		case c.link() == nil:
			least = r.Add(least.Max(at), r.Cost(b.n))
		default:
			full := r.Full
			if b.rule.SameShape(r) {
				full = full.Max(b.rule.Full)
			}
			least = least.Max(r.Add(at, full)) // other nodes may have booked between
		}
	}
	return least
}

// fullLocked reports whether a booking may wait in a shared leaky bucket, on any node. A level above
// the capacity alone does not mean that: nodes that admit at the same moment may exceed the limit, and
// so does a debt.
func (c *Counter) fullLocked(now int64) bool {
	if c.link() == nil || now >= c.past().waiting && c.leastLocked(now) == (arith.Span{}) {
		return false
	}
	return c.rule().Add(arith.Span{NS: now}, c.rule().Full).Less(c.viewLocked())
}

// waitsLocked returns for how long callers of this node wait who have booked ahead.
func (c *Counter) waitsLocked(now int64) (d time.Duration) {
	for _, b := range c.past().booked {
		d = max(d, time.Duration(b.due-now))
	}
	return d
}

// waitLocked records until when callers wait who have booked ahead on any node, by an answer.
func (c *Counter) waitLocked(a report.Answer) {
	if a.Waiting > 0 {
		c.withHistory().waiting = a.At + a.Slack + (a.Waiting-a.ServerNow/1000)*1000
	} else if c.history != nil {
		c.history.waiting = 0
	}
}

// cancelLocked refunds what b holds, as far as no booking waits that would be touched.
func (c *Counter) cancelLocked(now int64, b *Booking) (back, taken int64) {
	r, at := c.rule(), arith.Span{NS: now}
	n, cost := c.stillLocked(now, b)
	if c.leaky() == nil {
		if n > 0 {
			back, taken = c.returnLocked(now, algorithm.Refund{Units: n, Reported: true})
		}
		return back, taken
	}
	h := c.withHistory()
	behind := c.othersBehindLocked(now, b)
	h.booked = slices.DeleteFunc(h.booked, func(other *Booking) bool { return other == b })
	owed := r.Sub(h.owed, at)
	n, cost = n+r.WholeUp(owed), r.Add(cost, owed)
	was := c.viewLocked()
	last := b.rule.SameShape(r) && was == c.endLocked(b)
	if b.n = 0; n > 0 && !behind {
		back, taken = c.returnLocked(now, algorithm.Refund{Units: n, Cost: cost, Reported: true})
	}
	if last { // nothing was booked behind b, so its own units were behind all others
		own := algorithm.Earlier(r.Sub(cost, owed), r.Sub(was, c.viewLocked()))
		h.refunded = r.Sub(h.refunded, own)
	}
	if h.owed = (arith.Span{}); !behind && c.leastLocked(now) != (arith.Span{}) {
		h.owed = r.Add(at, r.Sub(cost, r.Cost(taken)))
	}
	return back, taken
}

// othersBehindLocked reports whether other nodes may have booked behind b, and wait.
func (c *Counter) othersBehindLocked(now int64, b *Booking) bool {
	if modeDegraded(c.mode()) || !c.fullLocked(now) {
		return false
	}
	return b.due <= now || b.mixed
}

// correctedLocked records that an answer has changed the level of a leaky bucket, which was to be
// empty at was. Times of answers are not known more exactly than slack ns, so a smaller change is none.
func (c *Counter) correctedLocked(was arith.Span, slack int64) {
	r := c.rule()
	up, down := r.Sub(c.viewLocked(), was), r.Sub(was, c.viewLocked())
	others := up.NS > slack || down.NS > slack
	if h := c.history; h != nil {
		if h.refunded = r.Add(h.refunded, down); others {
			h.owed = arith.Span{}
		} else {
			h.refunded = r.Sub(h.refunded, up)
		}
	}
	for _, b := range c.past().booked {
		b.at = r.Sub(r.Add(b.at, up), down)
		b.mixed = b.mixed || others
	}
}

// voidBookingsLocked makes all bookings void. Some bookings may be known to their callers alone:
// those of a window, and those from before c was dropped and created again. The number of resets
// shows that they are void, and is kept as long as they can count. It returns the history.
func (c *Counter) voidBookingsLocked(now int64) *history {
	h := c.keepHistoryLocked(now + int64(c.rule().Horizon()))
	h.resets++
	h.booked, h.owed = nil, arith.Span{}
	return h
}

// dropHistoryLocked drops the history if nothing in it matters any more, so that the key is as
// small and as fast as one without. A generation keeps it, because Redis compares the generation
// with its own. A difference of the clocks keeps it, because otherwise the known level would be
// lowered by the whole difference once more.
func (c *Counter) dropHistoryLocked(now int64) {
	if c.history == nil || now < c.history.keepUntil {
		return
	}
	c.dropDueLocked(now)
	h := c.history
	h.unlearnt = nil // its units do not count any more
	if h.gen != 0 || h.witness > now || max(h.clockGap, -h.clockGap) >= leastClockGap || h.waiting > now || h.ended != nil || c.hasReturns() {
		h.keepUntil = now + int64(c.rule().Horizon())/8 // not at each check: there may be many bookings
		return
	}
	c.history = nil
}

// history is what only few keys need: resets, bookings, and clocks that stood still. It is dropped
// when nothing in it matters any more.
type history struct {
	gen       int64      // generation of the state in Redis
	serverNow int64      // Redis' clock at its last answer
	witness   int64      // until then views from before a reset that was made here could matter, ns
	backGen   int64      // gen when the oldest refund was made that Redis has not acknowledged
	clockGap  int64      // value of currentClockGap at the last answer for a leaky bucket
	waiting   int64      // until when callers wait who have booked ahead, by Redis' last answer, ns
	saidAt    int64      // when other nodes were last notified to ask, because units are booked ahead, ns
	resets    uint32     // how often this counter was reset or set
	refunded  arith.Span // the time that all that was refunded of a leaky bucket would have taken to leak
	booked    []*Booking // of a leaky bucket, those that are not due, in the order of due
	owed      arith.Span // when what was cancelled and not refunded, because others wait, has leaked at the earliest

	unlearnt *unlearnt     // nil: none
	returned uint32        // how often Redis has acknowledged refunds
	ended    chan struct{} // closed when an exchange ends, see AwaitReturns; nil: no caller waits

	keepUntil int64 // the history is not dropped before, ns
}

// withHistory returns the history for writing.
func (c *Counter) withHistory() *history {
	if c.history == nil {
		c.history = new(history)
	}
	return c.history
}

// past returns the history for reading.
func (c *Counter) past() history {
	if c.history == nil {
		return history{}
	}
	return *c.history
}

// gen returns the generation of the state in Redis.
func (c *Counter) gen() int64 { return c.past().gen }

// setGen records the generation of the state in Redis, and Redis' clock, which matters only if
// there is a generation.
func (c *Counter) setGen(gen, serverNow int64) {
	if gen != 0 || c.history != nil {
		h := c.withHistory()
		h.gen, h.serverNow = gen, serverNow
	}
}

// setClockGap records how far the clocks are apart, see repairKnownLocked. Less than leastClockGap
// counts as nothing, because two readings are never taken at the same moment.
func (c *Counter) setClockGap(ns int64) {
	if ns >= leastClockGap || ns <= -leastClockGap || c.history != nil {
		c.withHistory().clockGap = ns
	}
}

// keepHistoryLocked returns the history. It is kept at least until this time, in ns.
func (c *Counter) keepHistoryLocked(until int64) *history {
	h := c.withHistory()
	h.keepUntil = max(h.keepUntil, until)
	return h
}

// leastClockGap is the least difference of clocks, in ns, that is recorded, see setClockGap.
const leastClockGap = algorithm.ClockStep / 4
