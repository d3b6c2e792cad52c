package counter

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/limit"
)

// This file decides when a counter can be dropped. The index calls these methods, under a lock that
// prevents other calls from entering and dropping the same counter.

// Retention is why a counter should stay. Of two counters the one with the lower retention goes first.
type Retention uint8

const (
	// Idle: in the state of a new counter. Nothing is lost with it.
	Idle Retention = iota
	// Used: units count. The trace of the counter remembers them.
	Used
	// Unreported: some units were never sent to Redis. They are lost for the other nodes.
	Unreported
	// Kept: something that a trace does not hold: callers that wait, reservations, a reset or a
	// refund that Redis or other nodes may not know, data to restore.
	Kept
	// InFlight: the answer to a report is still to come. Such a counter is never dropped.
	InFlight
)

func (c *Counter) retentionLocked(now int64) Retention {
	now = max(now, c.last)
	c.dropHistoryLocked(now)
	c.rollLocked(now)
	switch {
	case c.link() != nil && (c.is(inFlight) || c.sentUnits() > 0):
		return InFlight
	case c.hasWaitersLocked(now), c.link() != nil && (c.is(restoring) || c.replica().ReturnsAt(c.rule(), now) || c.owedLocked() > 0):
		return Kept
	case c.unreportedLocked(now):
		return Unreported
	}
	if used, _ := c.state().Usage(c.rule(), now); used {
		return Used
	}
	return Idle
}

// hasWaitersLocked reports whether c knows of waiting callers, of reservations that are not due, or of a
// reset that other nodes may have missed.
func (c *Counter) hasWaitersLocked(now int64) bool {
	if claim := c.claimLocked(0); claim > 0 {
		c.claimLocked(claim)
		return true
	}
	h := c.past()
	return h.witness > now || slices.ContainsFunc(h.booked, func(b *Booking) bool { return b.due > now })
}

// unreportedLocked reports whether a shared c has pending units. Those that cannot be reported
// because of an outage, and do not count any more, would keep c for ever: they are dropped with c,
// see drainLocked.
func (c *Counter) unreportedLocked(now int64) bool {
	if c.link() == nil || c.pendUnits() == 0 {
		return false
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

// Expire drops unreported units that do not count any more, and counts them as expired. The sweep drops
// those of a leaky bucket only with c. Units that were sent stay: Redis may have booked them.
func (c *Counter) Expire(now int64) {
	c.lock(now)
	defer c.unlock()
	c.rollLocked(max(now, c.last))
	c.drainLocked(now)
}

// Retention returns how much would be lost if c were dropped.
func (c *Counter) Retention(now int64) Retention {
	c.lock(now)
	defer c.unlock()
	return c.retentionLocked(now)
}

// Share returns which part of its limit counts, as of a trace: see [algorithm.Trace.ShareLeft].
func (c *Counter) Share(now int64) int {
	c.lock(now)
	defer c.unlock()
	now = max(now, c.last)
	return c.state().Trace(c.rule(), now, modeMultiplier(c.mode())).ShareLeft(c.Rule(), now)
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
	Held      bool            // by the policy
	Trace     algorithm.Trace // what it counted, read by Rule; zero: nothing
	Rule      *limit.Rule
}

// Drop marks c as dead, so that calls look up another counter, if its retention is no higher than
// most, which must be below InFlight. It reports whether it did.
func (c *Counter) Drop(most Retention, now int64) (d Dropped, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return d, false
	}
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
	if d.Rule = c.Rule(); d.Retention > Idle {
		d.Trace = c.state().Trace(c.rule(), max(now, c.last), modeMultiplier(c.mode()))
	}
	if l := c.link(); l != nil {
		l.Unreported.Add(c.pendUnits())
		if owed := c.owedLocked(); owed > 0 || c.replica().ReturnsAt(c.rule(), now) { // Redis goes on counting these units
			c.replica().Collect(c.rule())
			l.Unreturned.Add(owed + c.sentBackLocked(now))
		}
	}
	c.dead, d.Held, d.Entry = true, c.is(held), c.entry
	c.exchangeEndedLocked()
	c.leaveLocked()
	return d, true
}

// Resume makes a new c count what a dropped counter of its key counted, by its trace under the rule
// of c. In a shared counter these units stand for what Redis knows, until it answers. They count also if
// another node has announced since that there is room, as those of a counter do that was not dropped:
// Redis is asked with the first check. Call it before that.
func (c *Counter) Resume(now int64, t algorithm.Trace) {
	c.state().Resume(c.rule(), max(now, 0), t)
	if l := c.link(); l != nil {
		c.born = recalled
		c.replica().Collect(c.rule())
		c.replica().KeepSent(c.rule(), 1)
		c.setUrgentAt(urgentFrom(c.rule().Limit-c.replica().KnownUnits(c.rule(), now), l.nodes.Load()))
	}
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
