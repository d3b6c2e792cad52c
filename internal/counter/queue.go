package counter

import (
	"math"
	"math/bits"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
)

// A Queue is where the reconciler takes a counter from.
type Queue int

const (
	Normal Queue = iota // reports that are due a lag after their first unit
	Urgent              // reports that are due at once, or soon
)

// noteLocked puts c into the queues of the reconciler if it has something to report or must ask. It
// returns whether to wake the reconciler.
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
	if near && !modeDegraded(c.mode()) { // nothing is urgent while Redis is unreachable
		wake = c.pushUrgentLocked(unsynced)
	}
	// Whether it admits or refuses, a key in use needs a fresh view: see Due.
	if c.joinNormalLocked() {
		wake = l.push(c, false) || wake
	}
	return wake
}

// urgentFrom returns how many pending units make a report urgent when this many units are left for
// all nodes: half of this node's part, or a quarter of the part if half of it is more than a few.
// With a quarter, nodes hide fewer units from each other when a large limit is nearly used up by
// many checks (10 nodes, 1,000 per second, ten times as many checks: 1.02 times the limit is
// admitted, not 1.05). A single node has no other node to hide units from.
func urgentFrom(left, nodes int64) int64 {
	half := left / (2 * nodes)
	if nodes == 1 {
		return half
	}
	return max(half/2, min(half, fewUrgent))
}

const fewUrgent = 4

// pushUrgentLocked puts c, which has this many pending units, into the urgent queue. If its report
// lingers there, it may move the report forward. It returns whether to wake the reconciler.
func (c *Counter) pushUrgentLocked(pending int64) (wake bool) {
	until := c.lingerLocked(c.last, pending)
	switch {
	case !c.is(inUrgent):
		c.mark(inUrgent)
	case pending >= c.nextDoublingLocked() && c.lingerUntil <= c.last: // others are before it in the queue
		until = 0
	case c.lingerUntil == 0 || until >= c.lingerUntil-leastLinger:
		return false
	}
	c.setDoublingsLocked(pending)
	c.lingerUntil = until
	return c.link().push(c, true)
}

// mostDoublings is the upper bound of what setDoublingsLocked notes. So a counter enters the urgent
// queue a few times before it is collected, however many units come.
const mostDoublings = 7

// setDoublingsLocked notes how often urgentAt can be doubled without exceeding the pending units.
func (c *Counter) setDoublingsLocked(pending int64) {
	n := max(bits.Len64(uint64(pending/int64(c.urgentAt)))-1, 0)
	c.flags = c.flags&(1<<doublings-1) | flags(min(n, mostDoublings)<<doublings)
}

// nextDoublingLocked returns with how many pending units a counter of the urgent queue must be put
// there once more, to go before others.
func (c *Counter) nextDoublingLocked() int64 {
	if n := c.flags >> doublings; n < mostDoublings {
		return int64(c.urgentAt) << (n + 1)
	}
	return math.MaxInt64
}

// MoreNodes makes fewer pending units urgent, because there are more nodes than before.
func (c *Counter) MoreNodes(now int64) (out Outcome) {
	c.lock(now)
	defer c.unlock()
	if c.dead || c.is(quarantined|inFlight) { // the answer will do it
		return out
	}
	now = max(now, c.last)
	c.rollLocked(now)
	c.setUrgentAt(min(int64(c.urgentAt), urgentFrom(c.rule().Limit-c.replica().KnownUnits(c.rule(), now), c.link().nodes.Load())))
	return c.queueLocked(now, out)
}

// leastLinger is the shortest time, in ns, for which it pays to let a report wait for others.
const leastLinger = 1_000_000

// lingerLocked returns until when an urgent report of this many pending units may wait for those of
// other keys; 0: not at all. It may wait as long as all nodes together, if each hides as many, hide
// no more than is left, and no longer than all nodes take to admit a hundredth of the limit.
func (c *Counter) lingerLocked(now, pending int64) (until int64) {
	r, n := c.rule(), c.link().nodes.Load()
	if !c.isAnsweredLocked() || c.is(hurried) || algorithm.Times(pending, n) > r.Limit-c.replica().KnownUnits(r, now) {
		return 0
	}
	since := c.freshAt // one unit says nothing about the rate
	if pending > 1 {
		since = c.since
	}
	linger := float64(now-since) / float64(pending) * float64(r.Limit) / float64(100*n)
	if linger = min(linger, float64(c.link().pace.Interval)); linger < leastLinger {
		return 0
	}
	return now + int64(linger)
}

// Urgency is how urgent the report of a counter is.
type Urgency struct {
	Until   int64 // it may wait for others until then, by the clock of the checks; 0: not at all
	Pending int64 // units that were not sent to Redis yet
	At      int64 // so many make a report urgent
}

// Urgency returns how urgent the report of c is.
func (c *Counter) Urgency() Urgency {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Urgency{c.lingerUntil, c.pendUnits(), int64(c.urgentAt)}
}

// dateLocked sets since when the first unacknowledged unit appears, and clears it when none is
// left. leased is how many units the lease has admitted. For these since may be too late, but only
// if c was queued before without any unit. It returns the units that were not sent to Redis yet,
// without those of the lease.
func (c *Counter) dateLocked(now, leased int64) (pending int64) {
	pending, sent := c.replica().Units()
	switch {
	case pending+sent+leased == 0:
		c.since = 0
	case c.since == 0:
		c.since = max(now, 1)
	}
	return pending
}

// joinNormalLocked marks c as waiting in the normal queue, and reports whether it was not there
// yet. A dropped counter does not wait.
func (c *Counter) joinNormalLocked() bool {
	if c.dead || c.is(inNormal) {
		return false
	}
	c.mark(inNormal)
	return true
}

// Requeue marks c as waiting in the normal queue and reports whether it was not there yet, so that
// the caller must put it there.
func (c *Counter) Requeue() bool {
	c.mu.Lock() // not lock: the lease can stay
	defer c.unlock()
	c.unmark(retryPlanned)
	return c.joinNormalLocked()
}

// Dropped reports whether c was dropped, so that the queue in which it waits may remove it.
func (c *Counter) Dropped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		c.unmark(inNormal)
	}
	return c.dead
}

// Refresh makes c ask Redis again even if its view is fresh, and reports whether it is not queued
// yet, so that the caller must queue it.
func (c *Counter) Refresh() bool {
	c.mu.Lock() // not lock: the lease can stay
	defer c.unlock()
	c.mark(outdated)
	return c.joinNormalLocked()
}

// MarkRestore records that Redis has lost data, and reports whether c has something to restore and is
// not queued yet: the caller must queue it.
func (c *Counter) MarkRestore(now int64) bool {
	c.lock(now)
	defer c.unlock()
	now = max(now, c.last)
	if c.dead || !c.isAnsweredLocked() {
		return false
	}
	if c.blankLocked(now) && c.gen() == 0 {
		return false
	}
	c.mark(restoring)
	return !c.is(inFlight) && c.joinNormalLocked() // if in flight, Settle finds the mark and queues it
}

// hasReportLocked reports whether c has something to report at now.
func (c *Counter) hasReportLocked(now int64) bool {
	return c.is(restoring) || c.pendUnits() > 0 || c.replica().ReturnsAt(c.rule(), now) || c.owedLocked() > 0
}

// Lag returns how old, in ns, the view of a shared counter may become, and how long a unit of it may
// wait for its report.
func (c *Counter) Lag() int64 { return c.link().pace.lag(c.rule()) }

// RefusedLag is how old, in ns, the view of a key that refuses may become while notices arrive: a
// notice then reports that there is room again.
const RefusedLag = 5_000_000_000

// askAfterLocked returns how old, in ns, the view of c may become before it is fetched again: as
// old as lag says. It may become older if Redis has answered that the key is used up, and no notice
// was missed since: a notice would report that there is room again. By then at least half of the known
// units still count.
func (c *Counter) askAfterLocked() int64 {
	if c.is(denied) && c.isAnsweredLocked() && c.freshAt >= c.part.hearing.Load() && !modeDegraded(c.mode()) && !c.is(quarantined) && c.unsyncedUnits() == 0 {
		return max(c.Lag(), min(RefusedLag, int64(c.rule().Horizon()/2)))
	}
	return c.Lag()
}
