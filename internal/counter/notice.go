package counter

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A notice is a hint from another node: the key is used up until some time. It only refuses,
// and only until the authority has answered: nothing else leans on it. So a notice that is lost
// costs accuracy alone, and one that is wrong refuses for a lag at most after a check.

// Notice is what another node has said of a key.
type Notice struct {
	Shape uint32 // of the rule, see [arith.Rule.ShapeHash]
	Limit int64  // rules of that shape are bound whose limit is no higher
	Gen   int64  // generation of the authority's state, as in [Answer]
	Now   int64  // the authority's time at which that was so, ns
	Until int64  // the authority's time from which one more unit fits, ns; 0: there is room now
}

// heardNotice is a notice that a counter obeys.
type heardNotice struct {
	Notice
	heard int64 // our time, ns
	until int64 // Until by our clock, ns
}

// RefusedLag is the longest time, in ns, for which a key in use that refuses does not ask the
// authority while notices arrive: that there is room again is said by a notice.
const RefusedLag = 5_000_000_000

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
	case c.link() != nil && (modeDegraded(c.mode()) || c.is(quarantined)):
		return now < n.heard+c.lag()
	}
	return true
}

// judgeLocked is decideLocked for a check that obeys notices. Reservations and waiters do not.
func (c *Counter) judgeLocked(now, n int64, book bool) (allowed bool) {
	bound := c.notice != nil && n > 0 && c.noticeLocked(now) != nil
	return c.decideLocked(now, n, book && !bound) && !bound
}

// answerLocked is describeLocked for a check that judgeLocked has decided.
func (c *Counter) answerLocked(now, n int64, allowed bool) (res limit.Result) {
	res = c.describeLocked(now, n, allowed)
	if c.notice == nil {
		return res
	}
	h := c.noticeLocked(now)
	if h == nil {
		return res
	}
	res.Remaining = 0
	res.ResetAfter = max(res.ResetAfter, time.Duration(h.until-now))
	if !allowed {
		res.RetryAfter = max(res.RetryAfter, time.Duration(h.until-now))
		res.Source = c.refusalSourceLocked(now, n)
	}
	return res
}

// refusalSourceLocked returns on what knowledge a refusal of n units rests. It rests on a notice if
// c by itself would admit.
func (c *Counter) refusalSourceLocked(now, n int64) limit.Source {
	if c.notice != nil && c.noticeLocked(now) != nil && c.decideLocked(now, n, false) {
		return limit.SourceNotice
	}
	return c.sourceLocked()
}

// Hear takes over a notice that was heard at now. It reports whether the reconciler must put c
// into the normal queue: there may be room in a key that refuses.
func (c *Counter) Hear(now int64, n Notice) (ask bool) {
	c.lock(now)
	defer c.unlock()
	now = max(now, c.last)
	off, sure := c.part.clock()
	if c.dead || !sure || c.is(quarantined) || modeDegraded(c.part.mode.Load()) || n.Gen < c.gen() && n.Now/1000 < c.gen() {
		return false
	}
	if c.born != noAnswer && n.Now-off < c.freshAt-max(c.part.slack.Load(), 0) {
		return false // the latest answer is of a later time
	}
	if n.Until == 0 {
		return c.hearRoomLocked(now)
	}
	until := min(n.Until, n.Now+int64(c.rule().Horizon())) - off
	if h := c.notice; until <= now || h != nil && h.until >= until && h.Limit >= n.Limit && h.Shape == n.Shape {
		return false
	}
	c.notice = &heardNotice{Notice: n, heard: now, until: until}
	return false
}

// hearRoomLocked handles the notice that there is room.
func (c *Counter) hearRoomLocked(now int64) (ask bool) {
	bound := c.noticeLocked(now) != nil
	c.notice = nil
	c.rollLocked(now)
	if _, full := c.state().FullUntil(c.rule(), now); !full && !bound {
		return false
	}
	c.mark(outdated | inNormal) // it may be in the queue already, until later
	c.unmark(denied)
	return true
}

// announceLocked ends the notice that an answer makes void, and returns what the other nodes are
// to be told of the answer: that there is no room for one more unit, or that they must ask because
// there is room again after units were handed back (wasFull: there was none before), or because
// units are booked ahead of time, which is no use by now. It returns nil if there is nothing new.
// A dry run refuses nobody.
func (c *Counter) announceLocked(now int64, a Answer, wasFull bool) *Notice {
	r, heard := c.rule(), c.notice
	if heard != nil && (a.Sent >= heard.heard || a.ServerNow >= heard.Now) {
		c.notice = nil
	}
	off, sure := c.part.clock()
	if c.link().notices.name == nil || !sure || modeDegraded(c.mode()) || r.Limit == 0 {
		return nil
	}
	n := &Notice{Shape: r.ShapeHash(), Limit: r.Limit, Gen: c.gen(), Now: a.ServerNow}
	until, full := c.state().FullUntil(r, now)
	switch {
	case !full && wasFull, a.Announce && c.leastLocked(now) != arith.Span{}:
		return n
	case !full || !a.Announce || c.latestRule.Load().IsDryRun():
		return nil
	}
	least := now + int64(c.link().pace.Interval)
	if heard != nil && heard.Limit >= n.Limit && heard.Shape == n.Shape {
		least = max(least, heard.until+int64(c.link().pace.Interval))
	}
	if until < least {
		return nil
	}
	n.Until = until + off
	c.notice = &heardNotice{Notice: *n, heard: now, until: until}
	return n
}
