package counter

import (
	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// ceilingLocked returns the level up to which Redis books units of an outage. It is never lower
// than what waiting reservations need.
func (c *Counter) ceilingLocked(now int64) arith.Span {
	r, debt := c.rule(), arith.Span{NS: max(c.link().maxDebt, 0)}
	if c.link().maxDebt == 0 {
		debt = r.Full
	}
	return algorithm.Earlier(r.Add(r.Full, debt), mostDebt).Max(r.Sub(c.leastLocked(now), arith.Span{NS: now}))
}

// mostDebt is the longest time in which a debt may leak. Redis counts time up to a bound. It would
// book units that leak after the bound, but not count them.
var mostDebt = arith.Span{NS: int64(limit.MaxWindow)}

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
		c.link().forgiven.Add(n)
	}
}
