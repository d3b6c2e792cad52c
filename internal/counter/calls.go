package counter

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The calls of a counter other than the plain check. Each is one step under the lock of the
// counter. ok is false if the counter was dropped: then nothing has happened.

// TakeAtMost admits up to n units, as many as are left, and returns how many.
func (c *Counter) TakeAtMost(now, n int64, rule *limit.Rule) (granted int64, res limit.Result, ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return 0, res, false
	}
	c.rollLocked(now)
	if granted = min(n, c.roomLocked(now)); granted > 0 && !c.judgeLocked(now, granted) {
		granted = 0
	}
	c.bookLocked(now, granted)
	// If nothing could be granted, RetryAfter is that of one unit.
	res = c.answerLocked(now, min(n, 1), granted > 0 || n == 0)
	c.unlockAndNote()
	return granted, res, true
}

// roomLocked returns how many units would be admitted now.
func (c *Counter) roomLocked(now int64) int64 {
	w := modeMultiplier(c.mode())
	switch {
	case w < 0:
		return 0
	case w == MultiplierOpen:
		return c.rule().Limit
	}
	room := c.describeLocked(now, 0, true).Remaining
	if room == 0 && w > 1 && c.decideLocked(now, 1) {
		return 1 // the multiplier of a single unit is capped, see arith.Rule.Multiplied
	}
	return room
}

// Refund gives back up to n units, as far as they still count and no reservation was made after
// them. It returns by how many units fewer count, and how many were subtracted. Units of the oldest
// bucket of a window count only in part, so back may be less than taken.
func (c *Counter) Refund(now, n int64, rule *limit.Rule) (back, taken int64, ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return 0, 0, false
	}
	owed := c.oweLocked(n)
	n -= owed
	back, taken = c.returnLocked(now, algorithm.Refund{Units: n, Cost: c.rule().Cost(n), Reported: !c.fullLocked(now)})
	c.unlockAndNote()
	return back + owed, taken + owed, true
}

// Charge counts up to n units, whether they fit or not, and returns how many. A leaky bucket is
// raised to at most its capacity and what leaks in maxDebt, see [Link.SetMaxDebt], and a log to its
// limit. The rest is forgiven.
// Units of a shared leaky bucket are reported as debt, because several nodes may charge it at the
// same time: Redis does not book what would raise it above the ceiling.
func (c *Counter) Charge(now, n int64, rule *limit.Rule, maxDebt time.Duration) (charged int64, src limit.Source, ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return 0, 0, false
	}
	c.rollLocked(now)
	if charged = min(n, c.chargeableLocked(now, maxDebt)); charged > 0 {
		c.chargeLocked(now, charged)
	}
	src = c.sourceLocked()
	c.unlockAndNote()
	return charged, src, true
}

// chargeableLocked returns how many units may be charged.
func (c *Counter) chargeableLocked(now int64, maxDebt time.Duration) int64 {
	r := c.rule()
	f := c.leaky()
	switch {
	case c.counts == logs:
		return c.state().Describe(r, now, 0, 1, true).Remaining
	case f == nil:
		return arith.MaxUnits
	}
	at := arith.Span{NS: now}
	level := r.Sub(f.View, at)
	if modeMultiplier(c.mode()) != 1 {
		level = r.Sub(f.Unmultiplied(r), at)
	}
	return r.Whole(r.Sub(c.ceilingLocked(now, maxDebt), level))
}

// chargeLocked counts n units. The multiplier must not raise a leaky bucket above both its capacity
// and what its units without multiplier come to.
func (c *Counter) chargeLocked(now, n int64) {
	r, w := c.rule(), modeMultiplier(c.mode())
	if w == MultiplierClosed {
		w = 1 // that multiplier is for checks, which it refuses
	}
	c.state().Book(r, now, n, r.Multiplied(n, w), w)
	f := c.leaky()
	if f == nil {
		return
	}
	f.CapMultiplied(r, now, w)
	if c.link() != nil {
		f.Indebt(n)
		c.forgiveLocked(f)
	}
}

// returnLocked subtracts units, but does not free what waiting bookings need.
func (c *Counter) returnLocked(now int64, d algorithm.Refund) (back, taken int64) {
	if c.history != nil && !c.hasReturns() {
		c.history.backGen = c.gen()
	}
	c.rollLocked(now)
	d.Least, d.Reported = c.leastLocked(now), d.Reported && c.link() != nil
	was := c.viewLocked()
	back, taken, withdrawn := c.state().Refund(c.rule(), now, modeMultiplier(c.mode()), d)
	if back > 0 {
		c.notice = nil // there is room
	}
	if h := c.history; h != nil {
		h.refunded = c.rule().Add(h.refunded, c.rule().Sub(was, c.viewLocked()))
	}
	if c.link() != nil {
		c.link().Withdrawn.Add(withdrawn)
		return back, taken
	}
	if f := c.leaky(); f != nil {
		f.SettleAlone()
	}
	return back, taken
}

// Set replaces what is counted by used units. It is for counters without a link.
func (c *Counter) Set(now, used int64, rule *limit.Rule) (ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return false
	}
	defer c.unlock()
	c.voidBookingsLocked(now)
	c.rollLocked(now)
	c.state().Set(c.rule(), now, used)
	return true
}

// Renew applies a state that was reset or set in Redis; a needs no more than the state, At, Late and
// ServerNow. Pending units are dropped, because they
// were admitted before. A state that is older than what c knows changes nothing.
//
// c then reports the reset once more, as data to restore. From then on Redis cannot lose the reset
// without losing a report as well, which the reconciler notices. c is kept as long as views from
// before the reset can matter, because no other counter may know of the reset.
func (c *Counter) Renew(now int64, rule *limit.Rule, a report.Answer) (ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return false
	}
	wake := a.Gen > c.gen() && c.renewLocked(now, a)
	c.unlock()
	if wake {
		c.link().signal()
	}
	return true
}

func (c *Counter) renewLocked(now int64, a report.Answer) (wake bool) {
	h := c.voidBookingsLocked(now)
	if u := h.unlearnt; u != nil && u.answer.Gen < a.Gen {
		h.unlearnt = nil
	}
	c.notice = nil
	c.mark(restoring)
	c.note(voided, c.is(inFlight))
	h.gen, h.serverNow, h.witness, h.clockGap = a.Gen, a.ServerNow, a.At+int64(c.rule().Horizon()), c.currentClockGap()
	c.born, c.freshAt = a.Born, max(c.freshAt, a.At)
	c.lateLocked(a.Late)
	c.mark(outdated) // a reset is no exchange that measures the clock
	c.rollLocked(now)
	a.Now, a.ClockSlack = now, c.part.slack.Load()
	c.link().Withdrawn.Add(c.replica().Renew(c.rule(), a, modeMultiplier(c.mode())))
	c.setUrgentAt(urgentFrom(c.rule().Limit-c.replica().KnownUnits(c.rule(), now), c.link().nodes.Load()))
	return c.noteLocked()
}

// Touch asks Redis as a check would, and consumes nothing.
func (c *Counter) Touch(now int64, rule *limit.Rule) (ok bool) {
	if _, ok = c.enter(now, rule); !ok {
		return false
	}
	c.unlockAndNote()
	return true
}
