package counter

import "github.com/hybridlimit/hybridlimit/internal/algorithm"

// withHistory returns the history for writing.
func (c *Counter) withHistory() *history {
	if c.history == nil {
		c.history = new(history)
	}
	return c.history
}

// past returns the history for reading.
func (c *Counter) past() history {
	if !c.hasHistory() {
		return history{}
	}
	return *c.history
}

// hasHistory reports whether the key has a history.
func (c *Counter) hasHistory() bool { return c.history != nil }

// gen returns the generation of the state in Redis.
func (c *Counter) gen() int64 { return c.past().gen }

// setGen records the generation of the state in Redis, and Redis' clock, which matters only if
// there is a generation.
func (c *Counter) setGen(gen, serverNow int64) {
	if gen != 0 || c.hasHistory() {
		h := c.withHistory()
		h.gen, h.serverNow = gen, serverNow
	}
}

// setClockGap records how far the clocks are apart, see repairKnownLocked. Less than leastClockGap
// counts as nothing, because two readings are never taken at the same moment.
func (c *Counter) setClockGap(ns int64) {
	if ns >= leastClockGap || ns <= -leastClockGap || c.hasHistory() {
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
