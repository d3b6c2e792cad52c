package local

import "github.com/hybridlimit/hybridlimit/limit"

// denyFor is the longest, in ns, that a counter refuses unasked. It bounds for how long
// it does not move on, nor say that it is in use. One with an authority asks it when its
// view is a lag old, so that it hears of a reset or a refund.
const denyFor = 10_000_000_000

// sourceBits of a time in denied hold the source of the refusal.
const sourceBits = 7

// denies reports whether c refuses n units at now, as far as can be told without
// its lock: it has refused one unit, nothing has happened to it since, and nothing
// has leaked that would make room for one. False says nothing.
//
// Whoever locks c takes the refusal back (see lock), so that denied holds what
// was true when it was read. That the mode is still the one of the refusal is
// looked at in between, and denied read again, lest it be the mode of another.
// An unasked refusal leaves no trace: neither is it the latest time seen. Only of a
// new reading of the authority's clock a window learns later, by a lag at most.
func (c *Counter) denies(now, n int64, rule *limit.Rule) (src limit.Source, no bool) {
	until := c.denied.Load()
	if until == 0 || now >= until&^sourceBits || n < 1 || c.law.Load() != rule {
		return 0, false
	}
	if p := c.part(); p != nil && p.mode.Load() != c.mode() || c.denied.Load() != until {
		return 0, false
	}
	return limit.Source(until & sourceBits), true
}

// denyLocked lets c refuse until there may be room for one unit, having been asked
// for one at now and refused it.
func (c *Counter) denyLocked(now int64, src limit.Source) {
	r, w := c.rule(), modeWeight(c.mode())
	until := now + denyFor
	if c.part() != nil {
		if until = c.freshAt + c.lag(); until <= now {
			until = now + c.lag() // it has been queued for a report
		}
	}
	if w >= 0 && r.Limit() > 0 {
		cost := r.Weigh(1, w)
		switch r.Algorithm() {
		case limit.AlgorithmFunnel:
			until = min(until, int64(r.Sub(r.Add(c.funnel.view, r.Cost(cost)), r.Full()).Ceil()))
		case limit.AlgorithmSlidingLog:
			return
		default:
			until = min(until, c.win().fitsAt(r, cost))
		}
	}
	if until &^= sourceBits; until > now {
		c.denied.Store(until | int64(src))
	}
}
