package counter

import "github.com/hybridlimit/hybridlimit/internal/algorithm"

// This file has what happens to units that were sent if no answer settles them.

// dropSentLocked forgets what was sent: a reset has cleared it.
func (c *Counter) dropSentLocked() { c.state().DropSent(c.rule(), modeWeight(c.mode())) }

// KeepSentBack goes on counting units whose hand-back was sent: it is not known whether
// the authority has taken them off, and the hand-back will not be sent again.
func (c *Counter) KeepSentBack(now int64) {
	c.lock(now)
	defer c.unlock()
	c.state().KeepSentBack(c.rule(), modeWeight(c.mode()))
}

// keepSentLocked counts what was sent as known, without an answer.
func (c *Counter) keepSentLocked() {
	// What is known is repaired before units from after our clock stood still are added.
	c.repairKnownLocked(algorithm.ClockStep + max(c.last-c.freshAt, 0)/clockDrift)
	c.state().KeepSent(c.rule(), modeWeight(c.mode()))
}
