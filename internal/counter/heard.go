package counter

// noticeLocked returns the notice that binds a check at now, nil if there is none. It ends one
// that is over. All nodes let the key in at the same instant then: the next unit is urgent.
func (c *Counter) noticeLocked(now int64) *heardNotice {
	n := c.notice
	switch {
	case n == nil:
		return nil
	case now >= n.until:
		c.notice = nil
		c.setUrgentAt(1)
		c.mark(hurried)
		return nil
	case c.bindsLocked(n, now):
		return n
	}
	return nil
}

// bindsLocked reports whether n applies to the rule and the mode of c. In an outage a notice
// ends a lag after it was heard, because nobody can say any more that there is room.
func (c *Counter) bindsLocked(n *heardNotice, now int64) bool {
	r := c.rule()
	switch {
	case r.Limit > n.Limit, r.ShapeHash() != n.Shape, modeMultiplier(c.mode()) == MultiplierOpen:
		return false
	case c.link() != nil && modeDegraded(c.mode()):
		return now < n.heard+c.lag()
	}
	return true
}
