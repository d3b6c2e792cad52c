package counter

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The methods in this file are for the reconciler of a shared limiter, which
// calls them from one goroutine. An exchange of a counter begins with Collect,
// which moves what is pending to "sent". Settle (the authority has booked it) or
// Quarantine (the authority's copy of this key is broken) ends it. In between
// Resend reports the same again, as often as needed.

// Bucket is a number of units in one bucket of a window.
type Bucket = algorithm.Bucket

// Report is what a counter reports to the authority.
type Report struct {
	Rule *limit.Rule
	algorithm.Sent
	BackGen int64 // the generation in which Back and BackBuckets were handed back

	// Ceiling is the level, counted from now, above which the authority is to forgive Debt.
	Ceiling arith.Span

	Raise bool // the authority may have lost KnownLevel or KnownBuckets
	Gen   int64
	Born  int64 // when the newest unit of these was booked, by the authority's clock
	// KnownLevel (leaky bucket, counted from now, negative if it has run empty before) and
	// KnownBuckets (window) are what the authority has answered and should still know. They
	// are set if Raise is.
	KnownLevel   arith.Span
	KnownBuckets []Bucket
}

// Answer is what the authority says of a key.
type Answer struct {
	Rule      *limit.Rule // of the report
	Raised    bool        // the report carried Raise
	Gen       int64
	Born      int64      // when the newest unit was booked, in the unit of generations; 0: none was
	Level     arith.Span // leaky bucket; negative if it has been empty for so long
	Buckets   []Bucket   // window
	Forgiven  int64      // units of the report's Debt that were not booked
	Converted bool       // buckets were of another width before, and may have shifted
	At        int64      // our time at which the answer was given, ns
	ServerNow int64      // the authority's time then, ns
	Slack     int64      // uncertainty of At, ns
	Late      int64      // by how much At may be too late, ns
	Sent      int64      // our time at which the exchange began, ns
	Announce  bool       // units were booked now, and not for the first time after an outage
	Returned  bool       // units were handed back
}

// Outcome is what the reconciler has to do after an answer.
type Outcome struct {
	Lost      bool  // the authority knew less than it should: report again, raising
	Again     bool  // there is more to report: put the counter into the normal queue
	Urgent    bool  // it is urgent: put the counter into the urgent queue as well
	Overshoot int64 // units by which the authority's total is above the limit

	First  bool    // it was the first answer
	Notice *Notice // what the other nodes are to hear; nil: nothing
	Forget bool    // a notice of the key has ended before its time: see [Link.Forget]

}

// Shard returns the shard of the counter, which must have a link.
func (c *Counter) Shard() int { return c.part.shard }

// Due returns when, in the counters' time, c should report at the latest: when its view
// is a lag old, or at once if it has something to restore or to hand back.
func (c *Counter) Due() int64 {
	c.mu.Lock() // not lock: the lease can stay
	defer c.mu.Unlock()
	if c.born == noAnswer || c.is(raising|outdated) || c.state().HasReturns() {
		return math.MinInt64
	}
	return c.freshAt + c.askAfterLocked()
}

// Lag returns the longest, in ns, that a unit of c may wait for its report.
func (c *Counter) Lag() int64 { return c.lag() }

// staleLocked reports whether the view is to be fetched again.
func (c *Counter) staleLocked(now int64) bool {
	return c.born == noAnswer || c.is(outdated) || now-c.freshAt >= c.askAfterLocked()
}

// Collect begins an exchange and returns what c has to report at now; from is where c was taken
// from. ok is false if there is nothing to report.
func (c *Counter) Collect(now int64, from Queue) (rep Report, ok bool) {
	c.lock(now)
	defer c.unlock()
	c.unmark(pressing)
	switch from {
	case Normal:
		c.unmark(inNormal)
	case Urgent:
		c.unmark(inUrgent | listed)
	case Pressing:
		c.unmark(inUrgent)
	}
	if c.dead || c.is(inFlight) {
		return rep, false // Settle will queue it again
	}
	now = max(now, c.last)
	c.rollLocked(now)
	// Without units, a question is sent only if the view is old or unknown: a counter
	// may be queued twice, and is fresh the second time. A view that will be old at the
	// next collection counts as old. A quarantined key is always asked for: only the
	// reconciler queues it.
	if !c.hasReportLocked(now) && !c.staleLocked(now+int64(c.link().pace.Interval)) && !c.is(quarantined) {
		return rep, false
	}
	c.state().Collect(c.rule())
	c.mark(inFlight)
	return c.reportLocked(now), true
}

// Resend reports what is in flight once more. The units are the same; what is
// relative to now is computed again. raise adds what the authority should know
// already.
func (c *Counter) Resend(now int64, raise bool) Report {
	c.lock(now)
	defer c.unlock()
	now = max(now, c.last)
	c.rollLocked(now)
	c.note(raising, c.is(raising) || raise)
	if off, sure := c.part.clock(); sure && c.is(raising) {
		c.forgetGenerationLocked(now, now+off)
	}
	return c.reportLocked(now)
}

func (c *Counter) reportLocked(now int64) Report {
	rep := Report{Rule: c.latestRule.Load(), Raise: c.is(raising) && c.born != noAnswer, Gen: c.gen(), Born: max(c.born, 0), BackGen: c.past().backGen}
	// The authority's level is known no more exactly than its clock.
	rep.Sent = c.state().Sent(c.rule(), now, max(c.part.slack.Load(), 0)+backSlack)
	if rep.Debt > 0 {
		rep.Ceiling = c.ceilingLocked(now)
	}
	if rep.Raise {
		c.repairKnownLocked(algorithm.ClockStep + (now-c.freshAt)/clockDrift)
		rep.KnownLevel, rep.KnownBuckets = c.state().KnownState(c.rule(), now)
	}
	return rep
}

// Settle ends the exchange: what was sent is booked, and a is the state of the
// authority. What has been admitted since stays pending.
func (c *Counter) Settle(now int64, a Answer) Outcome {
	c.lock(now)
	defer c.unlock()
	before := c.is(voided) // what is in flight was sent before a reset that we know of
	void := before && a.Gen < c.gen()
	if c.since != 0 { // what is left was admitted after the flight was collected
		c.since = max(c.since, a.At-a.Slack)
	}
	c.unmark(inFlight | quarantined | voided | outdated | hurried | denied)
	if a.Raised && !void {
		c.unmark(raising)
	}
	// From here on the counter's unsynced units have the multiplier that the link says.
	c.setMode(c.part.mode.Load())
	if a.Gen < c.gen() {
		c.forgetGenerationLocked(a.At, a.ServerNow)
	}
	// Content counts if it is of the later generation of the two, or was born after
	// that began: the reset has cleared older content. If our generation or content is
	// later than now, the authority's clock was set back: then births say nothing.
	theirs := a.Gen >= c.gen() || a.Born >= c.gen() || a.ServerNow/1000 < max(c.gen(), c.born)
	ours := c.gen() >= a.Gen || c.born >= a.Gen
	// Redis may have booked a flight from before a reset either before it or after:
	// what we knew and have sent is no lower bound.
	floor := ours && !(theirs && a.Converted) && !before
	if !theirs {
		a.Level, a.Buckets = arith.Span{NS: math.MinInt64}, nil // empty, since when is not known
	}
	out, restore, otherClock := Outcome{First: c.born == noAnswer}, false, false
	back := int64(0)
	if a.Returned {
		back = c.sentBackLocked(now)
	}
	c.state().Forgive(c.rule(), a.Forgiven)
	switch {
	case void:
		// The answer is from before a reset that we know of meanwhile. What
		// was sent has been reset with the rest.
		c.dropSentLocked()
		c.mark(outdated)
		return c.queueLocked(max(now, c.last), out)
	case !arith.Of(a.Rule.Arith()).SameShape(c.rule()):
		// The numbers no longer fit the rule: ask again under the new one.
		c.keepSentLocked()
		c.mark(outdated)
		return c.queueLocked(max(now, c.last), out)
	default:
		s := c.settleLocked(max(now, c.last), a, floor)
		out.Lost, restore, otherClock = s.Lost, s.Lost || s.Forgotten || s.Earlier, s.OtherClock
	}
	// If the authority has lost a reset, each node that knows of it must report it at once.
	// Otherwise others book on top of what the reset has cleared, and the two cannot be
	// separated any more.
	c.note(raising, c.is(raising) || restore || a.Gen < c.gen())
	c.setGen(max(c.gen(), a.Gen), a.ServerNow)
	if !ours {
		c.born = 0
	}
	if theirs {
		c.born = max(c.born, a.Born)
	}
	c.born, c.freshAt = max(c.born, 0), max(a.At, 0)
	// An answer by a clock that was just set back may have been misread: ask again
	// with the next check.
	if otherClock {
		c.mark(outdated)
	}
	used := c.state().KnownUnits(c.rule(), max(now, c.last))
	out.Overshoot = max(used-c.rule().Limit, 0)
	c.setUrgentAt(urgentFrom(c.rule().Limit-used, c.link().nodes.Load()))
	// Whether it was full is what Redis says: this node may have known less before.
	wasFull := back > 0 && used+back >= c.rule().Limit-1
	out.Notice, out.Forget = c.announceLocked(max(now, c.last), a, wasFull)
	if out = c.queueLocked(max(now, c.last), out); !out.Again {
		c.dropHistoryLocked(max(now, c.last))
	}
	return out
}

// sentBackLocked returns how many units, rounded up, what is in flight hands back.
func (c *Counter) sentBackLocked(now int64) (n int64) {
	r := c.rule()
	sent := c.state().Sent(r, now, 0)
	if n = r.Whole(sent.Back); r.Cost(n).Less(sent.Back) {
		n++
	}
	for _, b := range sent.BackBuckets {
		n += b.Units
	}
	return n
}

// settleLocked takes over the state of the authority.
func (c *Counter) settleLocked(now int64, a Answer, floor bool) algorithm.Settled {
	r, w := c.rule(), modeMultiplier(c.mode())
	is := algorithm.Answer{
		Level: a.Level, Buckets: a.Buckets, At: a.At, ServerNow: a.ServerNow, Slack: a.Slack,
		ClockSlack: c.part.slack.Load(), Now: now, Floor: floor, Older: a.Gen < c.gen(),
	}
	f := c.leaky()
	if f == nil {
		c.rollLocked(now)
		s := c.state().Settle(r, is, w)
		c.expiredLocked(s.Expired)
		return s
	}
	if c.born != noAnswer {
		is.Slack += (a.At-c.freshAt)/clockDrift + int64(c.lateMicros)*int64(time.Microsecond)
		c.repairKnownLocked(is.Slack)
	}
	c.setClockGap(c.currentClockGap())
	was := r.Sub(f.View, r.Cost(a.Forgiven)) // no reservation was among them
	debt := f.SentDebt() - a.Forgiven
	s := f.Settle(r, is, w)
	if s.Forgotten { // the authority would have forgiven more if it had known what it forgot
		f.ForgiveKnown(r, debt, r.Add(c.ceilingLocked(a.At), arith.Span{NS: a.At}), is, w)
	}
	c.lateLocked(a.Late, s.Below)
	c.correctedLocked(was, is.Slack)
	f.CapMultiplied(r, now, w)
	return s
}

// announceLocked ends the notice that an answer makes void, and returns what the other nodes are
// to hear of the answer: that there is no room for one more unit, or that they must ask because
// there is room again after units were handed back (wasFull: there was none before), or because
// units are booked ahead of time, which is no use by now. It returns nil if there is nothing new.
// A dry run refuses nobody.
func (c *Counter) announceLocked(now int64, a Answer, wasFull bool) (n *Notice, forget bool) {
	r, heard := c.rule(), c.notice
	if forget = heard != nil && (a.Sent >= heard.heard || a.ServerNow >= heard.Now); forget {
		c.notice = nil
	}
	off, sure := c.part.clock()
	if c.link().notices.name == nil || !sure || modeDegraded(c.mode()) || r.Limit == 0 {
		return nil, forget
	}
	n = &Notice{Shape: r.ShapeHash(), Limit: r.Limit, Gen: c.gen(), Now: a.ServerNow}
	until, full := c.state().FullUntil(r, now)
	switch {
	case !full && wasFull, a.Announce && c.saysBookedLocked(now):
		return n, forget
	case !full || !a.Announce || c.latestRule.Load().IsDryRun() || c.leastLocked(now) != arith.Span{}:
		return nil, forget && !full
	}
	least := now + int64(c.link().pace.Interval)
	if heard != nil && heard.Limit >= n.Limit && heard.Shape == n.Shape {
		least = max(least, heard.until+int64(c.link().pace.Interval))
	}
	if until < least {
		return nil, false
	}
	n.Until = until + off
	c.notice = &heardNotice{Notice: *n, heard: now, until: until}
	return n, false
}

// saysBookedLocked reports whether the other nodes are to ask now because units are booked ahead:
// once a lag.
func (c *Counter) saysBookedLocked(now int64) bool {
	if c.leastLocked(now) == (arith.Span{}) || now < c.history.saidAt+c.lag() {
		return false
	}
	c.history.saidAt = now
	return true
}

// lateLocked notes by how much, in ns, the level that is known may be too late: by as much
// the next answer may be below it, and nothing is lost. If what was known before stands, its
// error does, too.
func (c *Counter) lateLocked(late int64, stands bool) {
	micros := uint32(min(max(late, 0)/int64(time.Microsecond)+1, math.MaxUint32))
	if stands {
		micros = max(micros, c.lateMicros)
	}
	c.lateMicros = micros
}

// queueLocked notes into which queues the reconciler must put c.
func (c *Counter) queueLocked(now int64, out Outcome) Outcome {
	c.dateLocked(now, 0)
	out.Again = c.hasReportLocked(now) && c.joinNormalLocked()
	if pending := c.pendUnits(); pending >= int64(c.urgentAt) && !c.is(inUrgent) && !modeDegraded(c.mode()) {
		c.mark(inUrgent)
		c.note(pressing, pending >= 2*int64(c.urgentAt))
		c.lingerUntil = c.lingerLocked(now, pending)
		out.Urgent = true
	}
	return out
}

// forgetGenerationLocked forgets a generation that does not matter any longer by the
// authority's clock, because nothing from before it can count. What we know of that
// generation does not count either; to raise it would undo what was booked since.
func (c *Counter) forgetGenerationLocked(now, server int64) {
	if server-c.past().serverNow > int64(c.rule().Horizon()) && c.blankLocked(now) {
		c.setGen(0, server)
	}
}

// blankLocked reports whether nothing that the authority has answered before counts
// any more.
func (c *Counter) blankLocked(now int64) bool {
	c.rollLocked(max(now, c.last))
	return c.state().Blank(now)
}

// repairKnownLocked lowers the known level of a leaky bucket if, by more than slack, our clock has
// stood still since the last answer, or the authority's was set back before that and has
// been put right since. The authority counts so much less now. Without this it would look
// like lost data, and be restored for all nodes. If the authority's clock only jumps ahead
// it is restored: what leaks by that jump has not leaked.
func (c *Counter) repairKnownLocked(slack int64) {
	f := c.leaky()
	if f == nil {
		return
	}
	if d := c.currentClockGap() - c.past().clockGap; d > slack {
		f.LowerKnown(d)
		c.setClockGap(c.currentClockGap())
	}
}

// currentClockGap returns, in ns, how far our clock has fallen behind the authority's, see
// Link.SetLag and Part.Step.
func (c *Counter) currentClockGap() int64 { return c.link().lag.Load() + c.part.back.Load() }

// clockDrift bounds how fast two clocks drift apart: 1 in 2,000, far more than the
// 1 in 10,000 of a bad oscillator.
const clockDrift = 2000

// backSlack is by how much, in ns, the same level may seem higher to the authority,
// besides the uncertainty of its clock.
const backSlack = 1_000_000

// Quarantined reports whether the authority could not use the key at the last exchange.
func (c *Counter) Quarantined() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.is(quarantined)
}

// Quarantine ends the exchange without an answer, for this key alone. Its units
// are pending again, unless they were booked before the authority's copy broke.
// Until an answer comes the key is decided at the fallback multiplier; ask again later,
// with Requeue. first reports whether that was not planned yet: a counter that was
// in several queues may fail twice.
func (c *Counter) Quarantine(now int64, booked bool) (first bool) {
	c.lock(now)
	defer c.unlock()
	first = !c.is(retryPlanned)
	c.unmark(inFlight)
	c.mark(quarantined | retryPlanned)
	if booked {
		c.keepSentLocked()
	} else {
		c.expiredLocked(c.state().GiveBack(c.rule()))
	}
	return first
}

// dropSentLocked forgets what was sent: a reset has cleared it.
func (c *Counter) dropSentLocked() { c.state().DropSent(c.rule(), modeMultiplier(c.mode())) }

// KeepSentBack goes on counting units whose hand-back was sent: it is not known whether
// the authority has taken them off, and the hand-back will not be sent again.
func (c *Counter) KeepSentBack(now int64) {
	c.lock(now)
	defer c.unlock()
	c.state().KeepSentBack(c.rule(), modeMultiplier(c.mode()))
}

// keepSentLocked counts what was sent as known, without an answer.
func (c *Counter) keepSentLocked() {
	// What is known is repaired before units from after our clock stood still are added.
	c.repairKnownLocked(algorithm.ClockStep + max(c.last-c.freshAt, 0)/clockDrift)
	c.state().KeepSent(c.rule(), modeMultiplier(c.mode()))
}

// Requeue marks c as waiting in the normal queue and reports whether it was
// not there yet, so that the caller must put it there.
func (c *Counter) Requeue() bool {
	c.mu.Lock() // not lock: the lease can stay
	defer c.unlock()
	c.unmark(retryPlanned)
	return c.joinNormalLocked()
}

// Dropped reports whether c is dead, so that the queue it waits in may drop it.
func (c *Counter) Dropped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		c.unmark(inNormal)
	}
	return c.dead
}

// Refresh makes c ask the authority again even if its view is fresh, and
// reports whether it is not queued yet, so that the caller must queue it.
func (c *Counter) Refresh() bool {
	c.mu.Lock() // not lock: the lease can stay
	defer c.unlock()
	c.mark(outdated)
	return c.joinNormalLocked()
}

// MarkRaise notes that the authority has lost data, and reports whether c has
// something to restore and is not queued yet: the caller must queue it.
func (c *Counter) MarkRaise(now int64) bool {
	c.lock(now)
	defer c.unlock()
	now = max(now, c.last)
	if c.dead || c.born == noAnswer {
		return false
	}
	if c.blankLocked(now) && c.gen() == 0 {
		return false
	}
	c.mark(raising)
	return !c.is(inFlight) && c.joinNormalLocked() // in flight: Settle finds the mark and queues it
}

// Pending reports whether there are units, admitted or handed back, that the authority
// has not acknowledged.
func (c *Counter) Pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsyncedUnits()+c.usedLocked() > 0 || c.state().HasReturns()
}

// Unsynced returns the admitted units that the authority has not acknowledged.
func (c *Counter) Unsynced() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsyncedUnits() + c.usedLocked()
}
