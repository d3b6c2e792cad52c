package counter

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// The methods in this file are for the reconciler of a shared limiter, which calls them from one
// goroutine. An exchange of a counter begins with Collect, which makes pending units sent units. It
// ends with Settle (Redis has booked them) or Quarantine (Redis' copy of this key is broken). In
// between, Report writes the report, as often as it is sent.

// Outcome is what the reconciler must do after an answer.
type Outcome struct {
	Lost      bool  // Redis knew less than it should: report again with Restore
	Again     bool  // there is more to report: put the counter into the normal queue
	Urgent    bool  // it is urgent: put the counter into the urgent queue as well
	Overshoot int64 // units by which Redis' total is above the limit

	First  bool           // it was the first answer
	Notice *report.Notice // to be sent to the other nodes; nil: nothing
	Forget bool           // a notice of the key has ended before its time: see [Link.Forget]
}

// Shard returns the shard of the counter, which must have a link.
func (c *Counter) Shard() int { return c.part.shard }

// Due returns when, by the clock of the checks, c should report at the latest: when its view is a
// lag old, or at once if it has something to restore, or to refund at now. A refund whose units have
// leaked is not reported: if it were due, Collect would not ask, and c would leave the queue.
func (c *Counter) Due(now int64) int64 {
	c.mu.Lock() // not lock: the lease can stay
	defer c.mu.Unlock()
	if !c.isAnsweredLocked() || c.is(restoring|outdated) || c.replica().ReturnsAt(c.rule(), max(now, c.last)) || c.owedLocked() > 0 {
		return math.MinInt64
	}
	return c.freshAt + c.askAfterLocked()
}

// staleLocked reports whether the view must be fetched again.
func (c *Counter) staleLocked(now int64) bool {
	return !c.isAnsweredLocked() || c.is(outdated) || now-c.freshAt >= c.askAfterLocked()
}

// Collect begins an exchange if c has something to report at now; from is where c was taken from. The
// caller must take c from the urgent queue in any case.
// It returns false if there is nothing to report.
func (c *Counter) Collect(now int64, from Queue) bool {
	c.lock(now)
	defer c.unlock()
	if c.unmark(inUrgent); from == Normal {
		c.unmark(inNormal)
	}
	if c.dead || c.is(inFlight) {
		return false // Settle will queue it again
	}
	now = max(now, c.last)
	c.rollLocked(now)
	// A report without units is sent only if the view is old or unknown: a counter may be queued
	// twice, and is fresh the second time. A view that will be old at the next collection counts as
	// old. A quarantined key is always asked for, because only the reconciler queues it.
	if !c.hasReportLocked(now) && !c.staleLocked(now+int64(c.link().pace.Interval)) && !c.is(quarantined) {
		return false
	}
	c.replica().Collect(c.rule())
	c.mark(inFlight)
	c.unmark(outdated) // what makes the view outdated from now on is not in the answer
	return true
}

// Report writes into rep, which must be zero, the report of what is in flight, without the name of
// the key. If it is sent again the units are the same; what is relative to now is computed again.
// restore adds what Redis should know already.
func (c *Counter) Report(now int64, restore bool, rep *report.Report) {
	c.lock(now)
	defer c.unlock()
	now = max(now, c.last)
	c.rollLocked(now)
	c.note(restoring, c.is(restoring) || restore)
	if off, sure := c.part.clock(); sure && c.is(restoring) {
		c.forgetGenerationLocked(now, now+off)
	}
	rep.Rule, rep.BackGen = c.latestRule.Load(), c.past().backGen
	// Redis' level is known no more exactly than its clock.
	c.replica().Report(c.rule(), now, max(c.part.slack.Load(), 0)+backSlack, rep)
	if rep.Debt > 0 {
		rep.Ceiling = c.ceilingLocked(now, c.link().maxDebt)
	}
	rep.Waits = c.waitsLocked(now)
	if rep.Restore = c.is(restoring) && c.isAnsweredLocked(); rep.Restore {
		c.repairKnownLocked(algorithm.ClockStep + (now-c.freshAt)/clockDrift)
		rep.Known.Gen, rep.Known.Born = c.gen(), max(c.born, 0)
		rep.Known.Level, rep.Known.Buckets = c.replica().KnownState(c.rule(), now)
	}
}

// Settle ends the exchange: what was sent is booked, and a is the state of the key in Redis. What
// has been admitted since stays pending.
func (c *Counter) Settle(now int64, a report.Answer) Outcome {
	c.lock(now)
	defer c.unlock()
	if c.since != 0 { // what is left was admitted after the report was collected
		c.since = max(c.since, a.At-a.Slack)
	}
	out := c.catchUpLocked(now, a.ServerNow, c.answeredLocked(now, a))
	c.exchangeEndedLocked()
	return out
}

// answeredLocked applies the state of the key in Redis.
func (c *Counter) answeredLocked(now int64, a report.Answer) Outcome {
	before := c.is(voided)
	void := before && a.Gen < c.gen()
	c.unmark(inFlight | quarantined | voided | hurried | denied)
	if a.Restored && !void {
		c.unmark(restoring)
	}
	// From here on the counter's unacknowledged units have the multiplier of the link.
	c.setMode(c.part.mode.Load())
	if a.Gen < c.gen() {
		c.forgetGenerationLocked(a.At, a.ServerNow)
	}
	theirs, ours := c.countLocked(&a)
	// Redis may have booked a report from before a reset either before the reset or after it. So
	// what we knew and have sent is no lower bound.
	a.Floor = ours && !(theirs && a.Converted) && !before
	if !theirs {
		a.Level, a.Buckets = arith.Span{NS: math.MinInt64}, nil // empty since an unknown time
	}
	out := Outcome{First: !c.isAnsweredLocked()}
	back := int64(0)
	if a.Returned {
		back = c.sentBackLocked(now)
		c.keepHistoryLocked(now+RefusedLag).returned++ // as long as a call may ask
	}
	if a.Applied && a.Waiting > 0 && a.Gen < a.ServerNow/1000 { // a refund would have begun a generation
		c.link().Unreturned.Add(back)
		back = 0
	}
	c.waitLocked(a)
	if f := c.leaky(); f != nil {
		f.Forgive(c.rule(), a.Forgiven)
	}
	switch {
	case void:
		// The answer is from before a reset that we know of by now. What was sent was reset with
		// the rest.
		c.replica().DropSent(c.rule(), modeMultiplier(c.mode()))
		c.mark(outdated)
		return c.queueLocked(max(now, c.last), out)
	case !arith.Of(a.Rule).SameShape(c.rule()):
		// The numbers no longer fit the rule: ask again under the new one.
		c.keepSentLocked()
		c.mark(outdated)
		return c.queueLocked(max(now, c.last), out)
	}
	out.Lost = c.compareLocked(max(now, c.last), a)
	c.knowLocked(a, theirs, ours)
	used := c.replica().KnownUnits(c.rule(), max(now, c.last))
	out.Overshoot = max(used-c.rule().Limit, 0)
	c.setUrgentAt(urgentFrom(c.rule().Limit-used, c.link().nodes.Load()))
	// Whether the key was full is decided by Redis' numbers: this node may have known less before.
	wasFull := back > 0 && used+back >= c.rule().Limit-1
	out.Notice, out.Forget = c.announceLocked(max(now, c.last), a, wasFull)
	if out = c.queueLocked(max(now, c.last), out); !out.Again {
		c.dropHistoryLocked(max(now, c.last))
	}
	return out
}

// sentBackLocked returns how many units, rounded up, the report in flight refunds.
func (c *Counter) sentBackLocked(now int64) (n int64) {
	r, sent := c.rule(), report.Report{}
	c.replica().Report(r, now, 0, &sent)
	n = r.WholeUp(sent.Back)
	for _, b := range sent.BackBuckets {
		n += b.Units
	}
	return n
}

// queueLocked determines into which queues the reconciler must put c.
func (c *Counter) queueLocked(now int64, out Outcome) Outcome {
	c.dateLocked(now, 0)
	out.Again = c.hasReportLocked(now) && c.joinNormalLocked()
	if pending := c.pendUnits(); pending >= int64(c.urgentAt) && !c.is(inUrgent) && !modeDegraded(c.mode()) {
		c.mark(inUrgent)
		c.setDoublingsLocked(pending)
		c.lingerUntil = c.lingerLocked(now, pending)
		out.Urgent = true
	}
	return out
}

// backSlack is by how much, in ns, the same level may seem higher to Redis, besides the uncertainty
// of its clock.
const backSlack = 1_000_000

// Quarantine ends the exchange without an answer, for this key alone. Its units are pending again,
// unless they were booked before Redis' copy broke. Until an answer comes, the key is decided at
// the fallback multiplier. Ask again later, with Requeue. was reports whether the last exchange ended
// so as well, and first whether that is not planned yet: a counter that was in several queues may
// fail twice.
func (c *Counter) Quarantine(now int64, booked bool) (was, first bool) {
	c.lock(now)
	defer c.unlock()
	was, first = c.is(quarantined), !c.is(retryPlanned)
	c.unmark(inFlight)
	c.mark(quarantined | retryPlanned)
	if booked {
		c.keepSentLocked()
	} else {
		c.expiredLocked(c.replica().GiveBack(c.rule()))
	}
	c.exchangeEndedLocked()
	return was, first
}

// KeepSentBack drops the refunds that were sent: their units go on counting. It is not known
// whether Redis has subtracted them, and they will not be sent again.
func (c *Counter) KeepSentBack(now int64) {
	c.lock(now)
	defer c.unlock()
	c.replica().KeepSentBack(c.rule(), modeMultiplier(c.mode()))
}

// keepSentLocked makes sent units known, without an answer.
func (c *Counter) keepSentLocked() {
	c.forgetRecalledLocked() // what was sent is a lower bound, and that is none
	// Repair the known level before units are added that came after our clock stood still.
	c.repairKnownLocked(algorithm.ClockStep + max(c.last-c.freshAt, 0)/clockDrift)
	c.replica().KeepSent(c.rule(), modeMultiplier(c.mode()))
}

// Pending reports whether there are units, admitted or refunded, that Redis has not acknowledged.
func (c *Counter) Pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsyncedUnits()+c.usedLocked() > 0 || c.returnsLocked()
}

// UnreportedBack returns how many refunded units Redis has not acknowledged. It is for the end:
// nothing may be reported after it.
func (c *Counter) UnreportedBack(now int64) (n int64) {
	c.lock(now)
	defer c.unlock()
	if !c.returnsLocked() {
		return 0
	}
	if !c.is(inFlight) {
		c.replica().Collect(c.rule())
	}
	return c.sentBackLocked(now) + c.owedLocked()
}

// Unsynced returns the admitted units that Redis has not acknowledged.
func (c *Counter) Unsynced() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsyncedUnits() + c.usedLocked()
}
