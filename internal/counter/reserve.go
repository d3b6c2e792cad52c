package counter

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Terms are the conditions of a reservation.
type Terms struct {
	// MaxDelay is the longest wait, in ns, for which units are booked.
	MaxDelay int64
	// Claim prevents other callers from taking the units that this caller waits for. It is for a
	// key that cannot be booked ahead, and lasts until the next reservation with a claim: also of no
	// units, for which none is claimed.
	Claim bool
	// Share admits no more than this node's part of what is left until its units are reported.
	// Otherwise, when a window ends, the waiting callers of every node would all take what is left
	// at the same moment.
	Share bool
}

// A caller that waits until this node's units are reported tries again after Pace.Interval /
// shareParts, and after at most shareWait ns.
const (
	shareParts = 50
	shareWait  = 20_000_000
)

// Reserve books n units if the terms allow it. RetryAfter is when they may be used or, if they are
// not booked, when to ask again.
func (c *Counter) Reserve(now, n int64, rule *limit.Rule, terms Terms) (res limit.Result, booked *Booking, ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return res, nil, false
	}
	if terms.Claim {
		c.claimLocked(0) // it is the claim of this caller
	}
	res, yes := c.reserveLocked(now, n, terms)
	if yes {
		booked = c.noteBookingLocked(now, n, res)
	} else if terms.Claim {
		c.claimLocked(n)
	}
	c.unlockAndNote()
	return res, booked, true
}

func (c *Counter) reserveLocked(now, n int64, terms Terms) (res limit.Result, booked bool) {
	fits, ahead := c.decideLocked(now, n), c.leaky() != nil
	res = c.describeLocked(now, n, fits)
	switch {
	case n == 0:
		return res, true
	case fits && terms.Share && !ahead && c.overbookedLocked(now, n):
		res.Allowed, res.RetryAfter = false, time.Duration(min(int64(c.link().pace.Interval)/shareParts, shareWait))
		c.setUrgentAt(1) // report to the other nodes at once
		return res, false
	case fits:
		c.bookLocked(now, n)
		return c.describeLocked(now, n, true), true
	case !ahead, modeMultiplier(c.mode()) < 0, n > c.rule().Limit,
		int64(res.RetryAfter) > min(terms.MaxDelay, int64(arith.MaxWindow)):
		return res, false // only a leaky bucket can be booked ahead
	}
	c.bookLocked(now, n)
	after := c.describeLocked(now, 0, true)
	res.Remaining, res.ResetAfter = after.Remaining, after.ResetAfter
	return res, true
}

// overbookedLocked reports whether n more units, together with those not reported yet, would exceed
// this node's part of what is left.
func (c *Counter) overbookedLocked(now, n int64) bool {
	unreported := c.unsyncedUnits()
	if unreported == 0 || modeMultiplier(c.mode()) != 1 {
		return false
	}
	return algorithm.Times(unreported+n, c.link().nodes.Load()) > c.roomLocked(now)+unreported
}

// claimLocked reserves n units of a window or log for a waiting caller. It replaces the previous
// claim, and returns it.
func (c *Counter) claimLocked(n int64) (was int64) {
	return c.state().Claim(c.rule(), n, modeMultiplier(c.mode()))
}

// Estimate returns after how many ns, at the least, n units can have been admitted, if others that
// ask for ahead units in all are admitted first and there are no further checks. For 0 units of a
// leaky bucket it returns how long the level stays above the capacity.
func (c *Counter) Estimate(now, ahead, n int64, rule *limit.Rule) (wait int64, ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return 0, false
	}
	wait = c.estimateLocked(now, ahead, n)
	c.unlockAndNote() // a caller that waits long needs a fresh view, because of resets
	return wait, true
}

func (c *Counter) estimateLocked(now, ahead, n int64) (wait int64) {
	w, rule := modeMultiplier(c.mode()), c.rule()
	f := c.leaky()
	switch {
	case w == MultiplierOpen, n == 0 && f == nil:
		return 0
	case f != nil && (w > 0 || n == 0):
		return max(f.FitsAt(rule, now, min(rule.Multiplied(n, w)+ahead, algorithm.MaxUnits))-now, 0)
	}
	claim := c.claimLocked(0) // its units are included in ahead
	l := max(rule.Limit, 1)
	windows, rest := ahead/l, ahead%l+n
	if rest > l {
		windows, rest = windows+1, rest-l
	}
	wait = int64(c.describeLocked(now, rest, c.decideLocked(now, rest)).RetryAfter)
	c.claimLocked(claim)
	if rule.Calendar != nil {
		later := c.window().Later(rule, windows)
		return min(wait, math.MaxInt64-later) + later
	}
	each := int64(rule.Width) * int64(max(rule.Kept, 1))
	if windows > (math.MaxInt64-wait)/max(each, 1) {
		return math.MaxInt64
	}
	return wait + windows*each
}

// Cancel refunds what a booking holds, as far as it still counts and no booking waits behind it. It
// returns by how many units fewer count, and how many were subtracted. Nothing is
// refunded if the key was reset or set since. Call it once for each booking.
func (c *Counter) Cancel(now int64, rule *limit.Rule, b *Booking) (back, taken int64, ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return 0, 0, false
	}
	back, taken = c.cancelLocked(now, b)
	c.unlockAndNote()
	return back, taken, true
}
