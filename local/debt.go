package local

import "github.com/hybridlimit/hybridlimit/limit"

// ceilingLocked returns the level up to which units of an outage are booked: below it
// they may take what somebody has reserved.
func (c *Counter) ceilingLocked(now int64) limit.Span {
	r, debt := c.rule(), limit.Span{NS: max(c.link().maxDebt, 0)}
	if c.link().maxDebt == 0 {
		debt = r.Full()
	}
	return r.Add(r.Full(), debt).Max(r.Sub(c.leastLocked(now), limit.Span{NS: now}))
}

// indebtLocked notes that n units were admitted, if that was in an outage.
func (c *Counter) indebtLocked(n int64) {
	if c.link() != nil && modeDegraded(c.mode()) {
		c.funnel.indebt(n)
	}
}
