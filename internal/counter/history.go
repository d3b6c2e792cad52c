package counter

import "github.com/hybridlimit/hybridlimit/internal/algorithm"

// history is what few keys have: resets, bookings, and clocks that stood still. It is dropped
// when nothing in it matters any more.
type history struct {
	gen       int64      // generation of the authority's state
	serverNow int64      // the authority's clock at its last answer
	witness   int64      // ns; until then views from before a reset that was made here could matter
	backGen   int64      // gen when the oldest units were handed back that the authority has not acknowledged
	clockGap  int64      // see currentClockGap, at the last answer for a leaky bucket
	resets    uint32     // how often this counter was reset or set
	booked    []*Booking // of a leaky bucket, by due

	keepUntil int64 // ns; nothing is dropped before
}

// withHistory returns the history for writing.
func (c *Counter) withHistory() *history {
	m := c.with()
	if m.history == nil {
		m.history = new(history)
	}
	return m.history
}

// past returns the history for reading.
func (c *Counter) past() history {
	if !c.hasHistory() {
		return history{}
	}
	return *c.more.history
}

// hasHistory reports whether the key has a history.
func (c *Counter) hasHistory() bool { return c.more != nil && c.more.history != nil }

// gen returns the generation of the authority's state.
func (c *Counter) gen() int64 { return c.past().gen }

// setGen notes the generation of the authority's state, and its clock, which matters only if
// there is a generation.
func (c *Counter) setGen(gen, serverNow int64) {
	if gen != 0 || c.hasHistory() {
		h := c.withHistory()
		h.gen, h.serverNow = gen, serverNow
	}
}

// setClockGap notes how far the clocks are apart, see repairKnownLocked. Less than
// leastClockGap counts as nothing, because two readings are never taken at the same moment.
func (c *Counter) setClockGap(ns int64) {
	if ns >= leastClockGap || ns <= -leastClockGap || c.hasHistory() {
		c.withHistory().clockGap = ns
	}
}

// keepHistoryLocked returns the history, which is kept until a time, in ns, at the least.
func (c *Counter) keepHistoryLocked(until int64) *history {
	h := c.withHistory()
	h.keepUntil = max(h.keepUntil, until)
	return h
}

// leastClockGap is the least difference of clocks, in ns, that is noted, see setClockGap.
const leastClockGap = algorithm.ClockStep / 4

// voidBookingsLocked makes all bookings void. Some may be known to their holders alone: those
// of a window, and those from before c was forgotten and made again. The number of resets
// is kept for as long as they can count, and shows that they are void. It returns the history.
func (c *Counter) voidBookingsLocked(now int64) *history {
	h := c.keepHistoryLocked(now + int64(c.rule().Horizon()))
	h.resets++
	for _, b := range h.booked {
		b.dropped = true
	}
	h.booked = nil
	return h
}

// dropHistoryLocked drops the history if nothing in it matters any more, so that the key is
// as small and as fast as one without. It is kept with a generation, because the authority
// compares that with its own. It is kept while the clocks are apart, because the known level
// would be lowered by the whole difference once more.
func (c *Counter) dropHistoryLocked(now int64) {
	if !c.hasHistory() || now < c.more.history.keepUntil {
		return
	}
	c.tidyLocked(now)
	h := c.more.history
	if len(h.booked) > 0 || h.gen != 0 || h.witness > now || max(h.clockGap, -h.clockGap) >= leastClockGap || c.state().HasReturns() {
		h.keepUntil = now + int64(c.rule().Horizon())/8 // not with each check: there may be many bookings
		return
	}
	if c.more.history = nil; *c.more == (more{}) {
		c.more = nil
	}
}
