package counter

// This file decides when a counter can be dropped. The index calls these methods, under a lock that
// prevents other calls from entering and dropping the same counter.

// Retention is how much would be lost if a counter were dropped.
type Retention uint8

const (
	// Idle: in the state of a new counter.
	Idle Retention = iota
	// Partial: used, but would not refuse one unit now.
	Partial
	// Denying: would refuse one unit now, or knows of a reset that other nodes may have missed.
	Denying
	// Pinned: holds units that Redis has not acknowledged.
	Pinned
)

func (c *Counter) retentionLocked(now int64) Retention {
	now = max(now, c.last)
	c.dropHistoryLocked(now)
	c.rollLocked(now)
	if c.link() != nil && c.pinnedLocked(now) {
		return Pinned
	}
	used, denies := c.state().Usage(c.rule(), now)
	if c.rule().Limit == 0 && !used && c.unsyncedUnits() == 0 {
		denies = false // a new one would refuse as well
	}
	switch {
	case denies, c.past().witness > now:
		return Denying
	case !used:
		return Idle
	}
	return Partial
}

// pinnedLocked reports whether a shared c holds anything that Redis has not acknowledged. One case
// does not pin: pending units that cannot be reported because of an outage, and do not count any
// more. They would keep c for ever, so they are dropped with c, see drainLocked.
func (c *Counter) pinnedLocked(now int64) bool {
	switch _, sent := c.state().Units(); {
	case c.is(inFlight), sent > 0:
		return true
	case !c.hasReportLocked(now):
		return false
	case c.is(restoring), c.state().ReturnsAt(c.rule(), now):
		return true
	}
	f := c.leaky() // a window drops what has left it
	return f == nil || !modeDegraded(c.part.mode.Load()) || !f.Drained(c.rule(), now)
}

// drainLocked drops the unreported units of a c that is dropped, see pinnedLocked. A c that stays
// keeps them, and reports them when it can.
func (c *Counter) drainLocked(now int64) {
	if f := c.leaky(); f != nil && c.link() != nil {
		c.expiredLocked(f.Drain(c.rule(), max(now, c.last)))
	}
}

// Retention returns how much would be lost if c were dropped.
func (c *Counter) Retention(now int64) Retention {
	c.lock(now)
	defer c.unlock()
	return c.retentionLocked(now)
}

// isUsedLocked reports whether c was asked since the last Offer. A refusal by a lease leaves no
// trace.
func (c *Counter) isUsedLocked() bool { return c.asked || c.usedLocked() != int64(c.seen) }

// IsBusy reports whether c was used lately, or is held by the policy.
func (c *Counter) IsBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.is(held) || c.isUsedLocked()
}

// Offer reports whether c was used since the last call. If so, c is held until Release.
func (c *Counter) Offer() (used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if used = c.isUsedLocked(); used {
		c.asked, c.seen = false, uint16(c.usedLocked())
		c.mark(held)
	}
	return used
}

// Release marks c as not held by the policy.
func (c *Counter) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unmark(held)
}

// Dropped describes a counter that was dropped.
type Dropped struct {
	Entry     *Entry // the entry that it had; nil: none
	Retention Retention
	Held      bool // by the policy
}

// Drop marks c as dead, so that calls look up another counter, if its retention is no higher than
// most. It reports whether it did.
func (c *Counter) Drop(most Retention, now int64) (d Dropped, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	valid := c.granted != 0 && c.entry.lease.Load().isValid(now)
	if c.granted != unitsRefused {
		c.revokeLocked(now) // else units might be admitted after c was looked at
	}
	if d.Retention = c.retentionLocked(now); d.Retention > most {
		if valid { // else an idle counter would get a new lease, which nothing may use
			c.grantLocked()
		}
		return d, false
	}
	c.revokeLocked(now)
	c.drainLocked(now)
	c.dead, d.Held, d.Entry = true, c.is(held), c.entry
	c.leaveLocked()
	return d, true
}

// Move takes c out of its entry, if it has one, and calls enter, which may call Enter. A check that
// has found the old entry finds no fingerprint there.
func (c *Counter) Move(now int64, enter func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revokeLocked(now)
	c.leaveLocked()
	enter()
	c.grantLocked()
}
