package counter

// noteLocked puts c into the queues of the reconciler if it has something to report
// or to ask. It returns whether the reconciler should be woken.
func (c *Counter) noteLocked() bool {
	unsynced := c.dateLocked(c.last, 0)
	if c.is(quarantined) {
		return false // the reconciler asks again by itself
	}
	l := c.link()
	wake := false
	near := unsynced > 0 && unsynced >= int64(c.urgentAt) && !c.is(inFlight)
	if l.closed.Load() {
		return false
	}
	// Nothing is urgent while the authority is away.
	if near && !c.is(inUrgent) && !modeDegraded(c.mode()) {
		c.mark(inUrgent)
		wake = l.urgent.push(c, &c.nextUrgent)
	}
	// Refused or not, a key in use needs a fresh view: see Due.
	if !c.is(inNormal) {
		wake = c.pushNormalLocked() || wake
	}
	return wake
}

func (c *Counter) pushNormalLocked() bool {
	c.mark(inNormal)
	c.link().normal.push(c, &c.nextNormal)
	return c.link().idle.Load() && c.link().idle.CompareAndSwap(true, false)
}

// dateLocked keeps since when c has units that the authority has not acknowledged. leased of
// them are those of the lease, which may have admitted them before: that is noticed at now at
// the latest, and only if c was queued without any unit. It returns the units that the
// authority has not been sent, but for those of the lease.
func (c *Counter) dateLocked(now, leased int64) (pending int64) {
	pending, sent := c.unitsLocked()
	switch {
	case pending+sent+leased == 0:
		c.since = 0
	case c.since == 0:
		c.since = max(now, 1)
	}
	return pending
}

// joinNormalLocked marks c as waiting in the normal queue, and reports whether it was not
// there yet. A dead counter does not wait.
func (c *Counter) joinNormalLocked() bool {
	if c.dead || c.is(inNormal) {
		return false
	}
	c.mark(inNormal)
	return true
}

// hasReportLocked reports whether c has something to report at now.
func (c *Counter) hasReportLocked(now int64) bool {
	return c.is(raising) || c.pendUnits() > 0 || c.state().ReturnsAt(c.rule(), now)
}

// lag returns the longest, in ns, that the view of a shared counter may be out of date.
func (c *Counter) lag() int64 { return c.link().pace.lag(c.rule()) }
