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
// units. Bookings behind it keep their times, so new callers would be admitted at the same times
// once more. Let x be the time at which a bucket is empty that has only the waiting bookings, each
// when it is due. As long as the level does not fall below x, a new caller finds as much of the
// capacity taken as the waiting bookings will use. What cannot be refunded because of them is
// refunded when they are cancelled, too. Of that, what has leaked by then is not refunded.
//
// In a shared bucket, only the other nodes know which of their bookings wait. A booking keeps the
// level above the capacity until it is due, and no node lowers the level further while a booking
// may wait. So no booking waits if the level is within the capacity. If the level is above it, Redis
// says until when bookings wait. While they do, only the end of the queue is refunded, and only if no
// other node has booked behind or between.
type Booking struct {
	n   int64      // units that were not refunded
	due int64      // when they may be used, ns
	at  arith.Span // due before it was rounded up
	// resets is how often the counter had been reset or set when this was booked.
	resets uint32

	// begin and end are when the leaky bucket was to be empty before and after the booking, less
	// what was refunded since of bookings that are due before it. So end is never later than the
	// time at which the bucket is empty, less what may be used after due. For another algorithm end
	// is when the units no longer count.
	begin, end arith.Span

	leaks     bool // of a leaky bucket
	inOutage  bool // booked in an outage: the multiplier of its units is not known
	cancelled bool
	mixed     bool // Redis has lowered the level since: others may have booked behind
	dropped   bool // nothing is refunded: see tidyLocked and voidBookingsLocked
}

// MaxDue bounds the bookings of a key that are remembered after they are due. If more than that
// have not leaked, the earliest are forgotten and cannot be refunded.
const MaxDue = 1024

// waits reports whether new callers must leave room for b.
func (b *Booking) waits(now int64) bool { return !b.cancelled && b.due > now }

// still returns how many units of b still count, and the time that they take to leak. The others
// have leaked, or left a window: to refund them would subtract newer units in their place. A unit
// that has leaked in part counts as one.
func (b *Booking) still(r *arith.Rule, now int64) (n int64, cost arith.Span) {
	left := r.Sub(b.end, arith.Span{NS: now})
	cost = r.Cost(b.n)
	switch {
	case b.inOutage && b.leaks:
		return b.n, cost // until tidyLocked drops it
	case left == arith.Span{}:
		return 0, arith.Span{}
	case !b.leaks || b.due >= now || !left.Less(cost):
		return b.n, cost
	}
	return min(b.n, r.WholeUp(left)), left
}

// noteBookingLocked records that n units were booked with the answer res. A leaky bucket was to be
// empty at begin before that.
func (c *Counter) noteBookingLocked(now, n int64, begin arith.Span, res limit.Result) *Booking {
	b := &Booking{n: n, due: now + int64(res.RetryAfter), resets: c.past().resets, inOutage: res.Source == limit.SourceDegraded}
	if n == 0 {
		return b
	}
	if b.leaks = c.leaky() != nil; b.leaks {
		b.begin, b.end = begin.Max(arith.Span{NS: now}), c.viewLocked()
		if b.at = (arith.Span{NS: now}); b.due > now {
			b.at = c.rule().Sub(b.end, c.rule().Full)
		}
		c.tidyLocked(now)
		c.enqueueLocked(b)
	} else {
		b.end = arith.Span{NS: now + int64(res.ResetAfter)}
	}
	c.keepHistoryLocked(now + int64(res.ResetAfter)) // the history counts resets until then
	return b
}

// enqueueLocked inserts b before the bookings that are due later. There are some if a refund has
// made room before them.
func (c *Counter) enqueueLocked(b *Booking) {
	h, r := c.withHistory(), c.rule()
	k, cost := len(h.booked), r.Sub(b.end, b.begin)
	for ; k > 0 && h.booked[k-1].due > b.due; k-- {
		behind := h.booked[k-1]
		own := r.Cost(behind.n)
		b.begin, b.end = r.Sub(b.begin, own), r.Sub(b.end, own)
		behind.begin, behind.end = r.Add(behind.begin, cost), r.Add(behind.end, cost)
	}
	h.booked = slices.Insert(h.booked, k, b)
}

// tidyLocked drops the bookings that no longer matter. A booking of an outage matters until the
// bucket is empty and everything is reported. Until then its units may count, and it is not known
// for how long each does.
func (c *Counter) tidyLocked(now int64) {
	h := c.withHistory()
	over := c.viewLocked().NS < now && c.unsyncedUnits() == 0 && !c.returnsLocked()
	h.booked = slices.DeleteFunc(h.booked, func(b *Booking) bool {
		n, _ := b.still(c.rule(), now)
		b.dropped = !b.waits(now) && (n == 0 || over)
		return b.dropped
	})
	for len(h.booked) > MaxDue && h.booked[0].due <= now {
		h.booked[0].dropped = true
		h.booked = h.booked[1:]
	}
}

// leastLocked returns the time before which the leaky bucket must not be empty, because of waiting
// bookings.
func (c *Counter) leastLocked(now int64) (least arith.Span) {
	for _, b := range c.past().booked {
		switch {
		case !b.waits(now):
		case c.link() == nil:
			least = c.rule().Add(least.Max(b.at), c.rule().Cost(b.n))
		default:
			least = least.Max(b.end)
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
		if b.waits(now) {
			d = max(d, time.Duration(b.due-now))
		}
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

// toHandBackLocked returns how many units to refund now that b is cancelled, as far as no booking
// waits behind, and the time that they take to leak.
func (c *Counter) toHandBackLocked(now int64, b *Booking) (n int64, cost arith.Span) {
	r := c.rule()
	switch {
	case b.resets != c.past().resets, b.dropped:
		return 0, cost
	case !b.leaks:
		return b.still(r, now)
	}
	h := c.withHistory()
	if b.cancelled = true; !slices.Contains(h.booked, b) { // the counter was dropped and created again
		h.booked = slices.Insert(h.booked, 0, b)
	}
	all, end := !c.fullLocked(now), c.viewLocked()
	for _, b := range slices.Backward(h.booked) {
		if !all && (!b.cancelled || b.mixed || b.end != end) {
			break
		}
		if b.cancelled {
			units, span := b.still(r, now)
			n, cost = n+units, r.Add(cost, span)
		}
		end = b.begin
	}
	return n, cost
}

// handedBackLocked records that n units of cancelled bookings were refunded, the last booking
// first.
func (c *Counter) handedBackLocked(now, n int64) {
	h, r := c.withHistory(), c.rule()
	for k, b := range slices.Backward(h.booked) {
		if !b.cancelled {
			continue
		}
		off, cost := b.still(r, now)
		if n < off {
			off, cost = n, r.Cost(n)
		}
		b.n, b.end, n = b.n-off, r.Sub(b.end, cost), n-off
		for _, behind := range h.booked[k+1:] {
			behind.begin, behind.end = r.Sub(behind.begin, cost), r.Sub(behind.end, cost)
		}
	}
	c.tidyLocked(now)
}

// loweredLocked records that used units were refunded, the newest first. They came before the
// bookings that are not due yet.
func (c *Counter) loweredLocked(now int64) {
	end, r := c.viewLocked(), c.rule()
	for _, b := range slices.Backward(c.past().booked) {
		b.end = algorithm.Earlier(b.end, end)
		if b.cancelled || b.due > now {
			end = r.Sub(b.end, r.Cost(b.n))
		}
		b.begin = algorithm.Earlier(b.begin, end)
	}
}

// correctedLocked records that an answer has changed the level of a leaky bucket, which was to be
// empty at was. A change of less than slack ns is ignored, because the times of answers are not
// known more exactly.
func (c *Counter) correctedLocked(was arith.Span, slack int64) {
	r, view := c.rule(), c.viewLocked()
	up, down := r.Sub(view, was), r.Sub(was, view)
	if up.NS > slack || up == down {
		return // others have booked behind
	}
	for _, b := range c.past().booked {
		b.begin, b.end = r.Sub(r.Add(b.begin, up), down), r.Sub(r.Add(b.end, up), down)
		b.mixed = b.mixed || down.NS > slack
	}
}

// restoredLocked records that units of an outage count as more than before, see
// [algorithm.LeakyBucket.Restored]. A leaky bucket was to be empty at was before that.
func (c *Counter) restoredLocked(was arith.Span) {
	r := c.rule()
	up := r.Sub(c.viewLocked(), was)
	for _, b := range c.past().booked {
		if b.inOutage {
			b.begin, b.end = r.Add(b.begin, up), r.Add(b.end, up)
		}
	}
}

// reshapeBookingsLocked converts the times of bookings to another rule.
func (c *Counter) reshapeBookingsLocked(old, rule *arith.Rule, now int64) {
	for _, b := range c.past().booked {
		b.begin, b.end = algorithm.Convert(old, rule, now, b.begin), algorithm.Convert(old, rule, now, b.end)
		b.at = arith.Span{NS: b.due} // callers keep their times
	}
}

// voidBookingsLocked makes all bookings void. Some bookings may be known to their callers alone:
// those of a window, and those from before c was dropped and created again. The number of resets
// shows that they are void, and is kept as long as they can count. It returns the history.
func (c *Counter) voidBookingsLocked(now int64) *history {
	h := c.keepHistoryLocked(now + int64(c.rule().Horizon()))
	h.resets++
	for _, b := range h.booked {
		b.dropped = true
	}
	h.booked = nil
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
	c.tidyLocked(now)
	h := c.history
	h.unlearnt = nil // its units do not count any more
	if len(h.booked) > 0 || h.gen != 0 || h.witness > now || max(h.clockGap, -h.clockGap) >= leastClockGap || h.waiting > now || h.ended != nil || c.hasReturns() {
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
	booked    []*Booking // of a leaky bucket, in the order of due

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
