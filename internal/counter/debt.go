package counter

import (
	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// ceilingLocked returns the level up to which units of an outage are booked. It is no lower
// than what waiting reservations need.
func (c *Counter) ceilingLocked(now int64) arith.Span {
	r, debt := c.rule(), arith.Span{NS: max(c.link().maxDebt, 0)}
	if c.link().maxDebt == 0 {
		debt = r.Full
	}
	return algorithm.Earlier(r.Add(r.Full, debt), mostDebt).Max(r.Sub(c.leastLocked(now), arith.Span{NS: now}))
}

// mostDebt is the longest time in which a debt is repaid. The authority counts time up to a
// bound, and would not count units that leak after it although it has booked them.
var mostDebt = arith.Span{NS: int64(limit.MaxWindow)}

// indebtLocked notes n units that were admitted as debt, if there is an outage.
func (c *Counter) indebtLocked(n int64) {
	if f := c.leaky(); f != nil && c.link() != nil && modeDegraded(c.mode()) {
		f.Indebt(n)
		c.forgiveLocked(f)
	}
}

// forgiveLocked drops the units of an outage that would be forgiven whatever the authority
// counts: those that would leak later than mostDebt even alone. It does so only at
// MultiplierOpen, where nothing waits, because everything is admitted.
func (c *Counter) forgiveLocked(f *algorithm.LeakyBucket) {
	if modeMultiplier(c.mode()) != MultiplierOpen {
		return
	}
	if n := f.ForgiveLate(c.rule(), c.rule().Add(arith.Span{NS: c.last}, mostDebt)); n > 0 {
		c.link().forgiven.Add(n)
	}
}
