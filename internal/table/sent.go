package table

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// This file has what happens to units that were sent if no answer settles them.

// dropSentLocked forgets what was sent: a reset has cleared it.
func (c *Counter) dropSentLocked() {
	if c.win() == nil {
		c.funnel.put(away{back: c.funnel.under().back, debt: c.funnel.under().debt})
		c.funnel.compose(c.rule(), modeWeight(c.mode()))
		return
	}
	c.win().forgetSent()
	clear(c.win().sentBack)
	c.win().sum(c.rule(), modeWeight(c.mode()))
}

// KeepSentBack goes on counting units whose hand-back was sent: it is not known whether
// the authority has taken them off, and the hand-back will not be sent again.
func (c *Counter) KeepSentBack(now int64) {
	c.lock(now)
	defer c.unlock()
	w := modeWeight(c.mode())
	if c.win() == nil {
		a := c.funnel.under()
		c.funnel.put(away{sent: a.sent, back: a.back, debt: a.debt, sentDebt: a.sentDebt})
		c.funnel.compose(c.rule(), w)
		return
	}
	clear(c.win().sentBack)
	c.win().sum(c.rule(), w)
}

// keepSentLocked counts what was sent as known, without an answer.
func (c *Counter) keepSentLocked() {
	w := modeWeight(c.mode())
	if c.win() == nil {
		// Follow the clock before units from after it stood still are added.
		c.followClockLocked(clockStep + max(c.last-c.freshAt, 0)/clockDrift)
		c.funnel.settle(c.rule(), c.funnel.known, arith.Span{NS: math.MaxInt64}, 0, 0, true, w)
		return
	}
	c.win().known = mergeBuckets(c.win().known, c.win().sent, func(a, b int64) int64 { return a + b })
	c.win().sent, c.win().sentUnits = nil, 0
	for i, u := range c.win().sentBack {
		if c.win().known == nil {
			break // nothing was under way
		}
		c.win().known[i] = max(c.win().known[i]-u, 0)
	}
	clear(c.win().sentBack)
	c.win().sum(c.rule(), w)
}
