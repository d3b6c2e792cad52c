package local

import (
	"math"
	"slices"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The methods in this file are for the reconciler of a shared limiter, which
// calls them from one goroutine. A counter goes through three steps: Collect
// moves what is pending to "sent"; then either Settle (the authority has
// booked it) or Quarantine (the authority's copy of this key is broken) ends the
// exchange, and Resend tells the same again as often as needed in between.

// Report is what a counter has to tell the authority.
type Report struct {
	Rule    *limit.Rule
	Units   int64      // sent in all; 0 is a mere question
	Ahead   limit.Span // funnel: TAT of the units sent, counted from now
	Buckets []Bucket   // window: the units that still count, by bucket
	// Back (funnel) and BackBuckets (window) are handed back: not Units, which
	// were admitted, but of those that the authority counts.
	Back        limit.Span
	BackTop     limit.Span // level above which others have booked behind what is handed back
	BackBuckets []Bucket
	BackGen     int64 // the generation in which that was done

	// Debt (funnel) is how many of Units were admitted in an outage. The authority is
	// to forgive as many of them as would raise the level above Ceiling, counted from
	// now. A window forgets by itself.
	Debt    int64
	Ceiling limit.Span

	Raise bool // the authority may have lost what is in Known…
	Gen   int64
	Born  int64 // when the newest of that was booked, as the authority told
	// KnownLevel (funnel, counted from now, negative if it has run empty before) and
	// KnownBuckets (window) are what the authority has told and should still know. Set
	// if Raise is.
	KnownLevel   limit.Span
	KnownBuckets []Bucket
}

// Answer is what the authority says of a key.
type Answer struct {
	Rule      *limit.Rule // of the report
	Raised    bool        // the report carried Raise
	Gen       int64
	Born      int64      // when the newest unit was booked, in what generations are counted in; 0: none was
	Level     limit.Span // funnel; negative if it has been empty for so long
	Buckets   []Bucket   // window
	Forgiven  int64      // units of the report's Debt that were not booked
	Converted bool       // they were of another width before, and may have shifted
	At        int64      // our time at which the answer was given, ns
	ServerNow int64      // the authority's time then, ns
	Slack     int64      // uncertainty of At, ns
}

// Outcome tells the reconciler what an answer has changed.
type Outcome struct {
	Counter *Counter // the one that lives: the heir if another was settled

	Lost      bool  // the authority knew less than it should: report again, raising
	Again     bool  // there is more to tell: put the counter into the normal queue
	Urgent    bool  // and so much that it belongs into the urgent queue as well
	Overshoot int64 // units by which the authority's total is above the limit
}

// Shard returns the shard of the counter, computed by f from its key the first
// time. Only the reconciler may call it.
func (c *Counter) Shard(f func(key string) int) int {
	p := c.part()
	if p.shard < 0 {
		c.lock()
		p = p.link.Part(f(c.Key()))
		c.place.Store(p)
		if c.win() != nil && c.last != math.MinInt64 { // it has been asked
			c.rebaseLocked(c.last)
		}
		c.mu.Unlock()
	}
	return p.shard
}

// Due returns when, in the counters' time, c should report at the latest: when its view
// is a lag old, or at once if it has something to restore or to hand back.
func (c *Counter) Due() int64 {
	c.mu.Lock() // not lock: nothing changes
	defer c.mu.Unlock()
	if c.born == untold || c.is(raising|outdated) || !c.isFolded() && c.returnsLocked() {
		return math.MinInt64
	}
	return c.freshAt + c.lag()
}

// lag returns the longest, in ns, that the view of a shared counter may be out of date.
func (c *Counter) lag() int64 { return c.link().pace.lag(c.rule()) }

// staleLocked reports whether the view is to be fetched anew.
func (c *Counter) staleLocked(now int64) bool {
	return c.born == untold || c.is(outdated) || now-c.freshAt >= c.lag()
}

// Collect takes what c has to tell at now; urgent says which of the two
// queues it was taken from. ok is false if there is nothing to tell.
func (c *Counter) Collect(now int64, urgent bool) (rep Report, ok bool) {
	c.lock()
	defer c.mu.Unlock()
	if urgent {
		c.unmark(inUrgent)
	} else {
		c.unmark(inNormal)
	}
	if c.dead || c.is(inFlight) {
		return rep, false // the heir, or the settling of what is in flight, sees to it
	}
	now = max(now, c.last)
	if c.win() != nil {
		c.rollLocked(now)
	}
	// A question alone is worth sending when the view is old or unknown; a
	// counter may be queued twice, and the second time finds it fresh. Nobody but
	// the reconciler asks for a key that was put aside. One that is old with the next
	// collection is old.
	if !c.tellsLocked(now) && !c.staleLocked(now+int64(c.link().pace.Interval)) && !c.is(quarantined) {
		return rep, false
	}
	if c.win() != nil {
		c.win().collect()
	} else {
		c.funnel.collect(c.rule())
	}
	c.mark(inFlight)
	return c.reportLocked(now), true
}

// Resend tells what is in flight once more. The units are the same; what is
// relative to now is stated anew. raise asks to add what the authority should
// know already. The counter that answers is returned too: the heir of a dead
// one.
func (c *Counter) Resend(now int64, raise bool) (*Counter, Report) {
	c = c.lockLiving()
	defer c.mu.Unlock()
	now = max(now, c.last)
	if c.win() != nil {
		c.rollLocked(now)
	}
	c.note(raising, c.is(raising) || raise)
	if off, sure := c.part().clock(); sure && c.is(raising) {
		c.outgrowLocked(now, now+off)
	}
	return c, c.reportLocked(now)
}

// lockLiving locks c, or the counter that has taken its place.
func (c *Counter) lockLiving() *Counter {
	for {
		c.lock()
		if c.heir() == nil {
			return c
		}
		heir := c.heir()
		c.mu.Unlock()
		c = heir
	}
}

func (c *Counter) reportLocked(now int64) Report {
	rep := Report{Rule: c.rule(), Raise: c.is(raising) && c.born != untold, Gen: c.gen(), Born: max(c.born, 0), BackGen: c.backGen()}
	at := limit.Span{NS: now}
	if c.win() != nil {
		rep.Units, rep.Buckets = c.win().sentUnits, c.win().list(c.win().sent)
		rep.BackBuckets = c.win().list(c.win().sentBack)
		if rep.Raise && !c.win().moved {
			rep.KnownBuckets = c.win().list(c.win().known)
		}
		return rep
	}
	a := c.funnel.under()
	rep.Units, rep.Back = a.sent.units, a.sentBack.at(c.rule(), now)
	if rep.Units > 0 {
		rep.Ahead = c.rule().Sub(a.sent.tat, at)
	}
	if rep.Debt = a.sentDebt; rep.Debt > 0 {
		rep.Ceiling = c.ceilingLocked(now)
	}
	if rep.Back != (limit.Span{}) {
		// What is known of the authority's level is no more exact than its clock.
		slack := limit.Span{NS: max(c.part().slack.Load(), 0) + backSlack}
		rep.BackTop = c.rule().Add(c.rule().Sub(a.sentBack.top, at), slack)
	}
	if rep.Raise {
		c.followClockLocked(clockStep + (now-c.freshAt)/clockDrift)
		rep.KnownLevel = c.rule().Diff(c.funnel.known, at)
	}
	return rep
}

// Settle ends the exchange: what was sent is booked, and a is what the
// authority says now. What has been admitted since stays pending.
func (c *Counter) Settle(now int64, a Answer) Outcome {
	c = c.lockLiving()
	defer c.mu.Unlock()
	before := c.is(voided) // what is in flight was sent before a reset that we know of
	void := before && a.Gen < c.gen()
	c.unmark(inFlight | quarantined | voided | outdated)
	if a.Raised && !void {
		c.unmark(raising)
	}
	// From here on the counter's unsynced units weigh what the link says.
	c.setMode(c.part().mode.Load())
	w := modeWeight(c.mode())
	if a.Gen < c.gen() {
		c.outgrowLocked(a.At, a.ServerNow)
	}
	// Content counts if it is of the later generation of the two, or was born since
	// that began: older content is what it has cleared. If that or our content is
	// later than now, the authority's clock was set back: its births say nothing then.
	theirs := a.Gen >= c.gen() || a.Born >= c.gen() || a.ServerNow/1000 < max(c.gen(), c.born)
	ours := c.gen() >= a.Gen || c.born >= a.Gen
	// Redis may have booked a flight from before a reset either before it or after:
	// what we knew and have sent is no lower bound.
	floor := ours && !(theirs && a.Converted) && !before
	if !theirs {
		a.Level, a.Buckets = limit.Span{NS: math.MinInt64}, nil // empty, for nobody knows how long
	}
	out, astray := Outcome{Counter: c}, false
	if c.win() == nil {
		c.funnel.forgive(c.rule(), a.Forgiven)
	}
	switch {
	case void:
		// It was given before a reset that we have heard of meanwhile. What was
		// sent has been reset with the rest.
		c.dropSentLocked()
		c.mark(outdated)
		return c.queueLocked(max(now, c.last), out)
	case !a.Rule.SameShape(c.rule()):
		// The numbers no longer fit the rule: ask again under the new one.
		c.keepSentLocked()
		c.mark(outdated)
		return c.queueLocked(max(now, c.last), out)
	case c.win() != nil:
		now = max(now, c.last)
		c.rollLocked(now)
		astray = c.win().sure && now+c.win().off-a.ServerNow > a.Slack+c.part().slack.Load()+clockStep
		lost, expired := c.win().settle(c.rule(), a.Buckets, c.serverBucketLocked(now, a.ServerNow), floor, w)
		c.link().expired.Add(expired)
		// In buckets narrower than the clocks can be compared, units come back
		// in a neighbouring one.
		out.Lost = lost && int64(c.rule().Width()) > a.Slack
	default:
		slack := a.Slack
		if c.born != untold {
			slack += (a.At - c.freshAt) / clockDrift
			c.followClockLocked(slack)
		}
		c.setApart(c.clocksApart())
		most := c.rule().Add(limit.Span{NS: a.At}, limit.Span{NS: int64(limit.MaxDrain)})
		was := c.rule().Sub(c.funnel.view, c.rule().Cost(a.Forgiven)) // nobody who waits was among them
		out.Lost = c.funnel.settle(c.rule(), c.rule().Add(a.Level, limit.Span{NS: a.At}).Max(limit.Span{}), most, a.At, slack, floor, w)
		c.correctedLocked(was, slack)
		c.funnel.capWeighted(c.rule(), max(now, c.last), w)
	}
	// The authority has lost a reset. Whoever knows of it must say so at once, lest
	// others book on what it has cleared: then nobody can tell the two apart.
	c.note(raising, c.is(raising) || out.Lost || a.Gen < c.gen())
	c.setGen(max(c.gen(), a.Gen))
	c.setHeard(a.ServerNow)
	if !ours {
		c.born = 0
	}
	if theirs {
		c.born = max(c.born, a.Born)
	}
	c.born, c.freshAt = max(c.born, 0), max(a.At, 0)
	// An answer by a clock that was set back a moment ago may have been
	// misread: the next check asks again at once.
	if astray {
		c.mark(outdated)
	}
	used := c.knownUnitsLocked(max(now, c.last))
	out.Overshoot = max(used-c.rule().Limit(), 0)
	// Half of this node's fair part of what is left: when that much has been
	// admitted unseen, the others should hear of it at once.
	c.setUrgentAt((c.rule().Limit() - used) / (2 * c.link().nodes.Load()))
	if out = c.queueLocked(max(now, c.last), out); !out.Again {
		c.foldLocked()
	}
	return out
}

// tellsLocked reports whether c has something to tell at now.
func (c *Counter) tellsLocked(now int64) bool {
	if c.is(raising) || c.pendUnits() > 0 {
		return true
	}
	if c.win() != nil {
		return c.win().backUnits > 0
	}
	return c.funnel.under().back.at(c.rule(), now) != limit.Span{}
}

// returnsLocked reports whether units were handed back that the authority has
// not acknowledged.
func (c *Counter) returnsLocked() bool {
	if c.win() == nil {
		a := c.funnel.under()
		return a.back.span != limit.Span{} || a.sentBack.span != limit.Span{}
	}
	return c.win().backUnits > 0 || slices.ContainsFunc(c.win().sentBack, func(u int64) bool { return u > 0 })
}

// queueLocked notes in which queues the reconciler must put c.
func (c *Counter) queueLocked(now int64, out Outcome) Outcome {
	if c.tellsLocked(now) && !c.is(inNormal) {
		c.mark(inNormal)
		out.Again = true
	}
	if c.pendUnits() >= int64(c.urgentAt) && !c.is(inUrgent) && !modeDegraded(c.mode()) {
		c.mark(inUrgent)
		out.Urgent = true
	}
	return out
}

// serverBucketLocked returns the ID of the authority's bucket at the time that
// an answer bears. One that lies ahead of what the authority's clock shows by
// now was given before that clock was set back: to go there would leave all
// that it counts from now on behind.
func (c *Counter) serverBucketLocked(now, server int64) int64 {
	if c.win().sure {
		server = min(server, now+c.win().off+c.part().slack.Load()+clockStep)
	}
	return floorDiv(server, int64(c.rule().Width()))
}

// outgrowLocked forgets a generation that the authority, by its clock, has no
// need to know any longer, because nothing from before it can count. Neither does
// what we know of it; to insist on it would undo what has been booked since.
func (c *Counter) outgrowLocked(now, server int64) {
	if server-c.heard() > int64(c.rule().Horizon()) && c.blankLocked(now) {
		c.setGen(0)
	}
}

// blankLocked reports whether nothing that the authority has told before counts
// any more.
func (c *Counter) blankLocked(now int64) bool {
	if c.win() == nil {
		return c.funnel.known.NS <= now
	}
	c.rollLocked(max(now, c.last))
	return len(c.win().list(c.win().known)) == 0
}

// followClockLocked lowers what a funnel knows if our clock has stood still since it was
// told, or the authority's was set back before that and has been put right, by more than
// slack. The authority counts so much less since then. To us that would look lost, and we
// would put it back for everybody. If the authority's clock just jumps ahead we do: what
// that makes leak has not leaked.
func (c *Counter) followClockLocked(slack int64) {
	if d := c.clocksApart() - c.apart(); d > slack {
		c.funnel.known.NS = max(c.funnel.known.NS-d, 0)
		c.setApart(c.apart() + d)
	}
}

// clocksApart returns how far our clock has fallen behind the authority's, see apart.
func (c *Counter) clocksApart() int64 { return c.link().lag.Load() + c.part().back.Load() }

// clockDrift is how slowly, at worst, two clocks part: 1 in 2,000, far more
// than the 1 in 10,000 that a bad oscillator shows.
const clockDrift = 2000

// backSlack is by how much, in ns, a level that is the same may seem higher to the
// authority, besides what is not known of its clock.
const backSlack = 1_000_000

// clockStep is by how much, in ns, two readings of one clock may be apart only
// because they were not taken at once.
const clockStep = 20_000_000

// leastApart is a part of that.
const leastApart = clockStep / 4

// knownUnitsLocked returns what the authority has told, in units, rounded down.
func (c *Counter) knownUnitsLocked(now int64) int64 {
	if c.win() == nil {
		return c.rule().Whole(c.rule().Sub(c.funnel.known, limit.Span{NS: now}))
	}
	used := int64(0)
	for i, u := range c.win().known {
		if i == c.rule().Kept() && i > 0 {
			u = c.win().still(c.rule(), now, u)
		}
		used = min(used+u, maxPart)
	}
	return used
}

// Quarantined reports whether the authority could not use the key the last time that it
// was told of it.
func (c *Counter) Quarantined() bool {
	c = c.lockLiving()
	defer c.mu.Unlock()
	return c.is(quarantined)
}

// Quarantine ends the exchange without an answer for this key alone. Its units
// are pending again, unless they were booked before the authority's copy
// broke. Until an answer comes the key is decided at the fallback weight; ask
// again later, with Requeue. It returns the counter to ask, and whether nobody
// was going to ask it yet: one that was in several queues may fail twice.
func (c *Counter) Quarantine(booked bool) (living *Counter, first bool) {
	c = c.lockLiving()
	defer c.mu.Unlock()
	first = !c.is(wounded)
	c.unmark(inFlight)
	c.mark(quarantined | wounded)
	switch {
	case booked:
		c.keepSentLocked()
	case c.win() == nil:
		c.funnel.giveBack(c.rule())
	default:
		c.link().expired.Add(c.win().giveBack())
	}
	return c, first
}

// Requeue marks c as waiting in the normal queue and reports whether it was
// not there yet, so that the caller must put it there.
func (c *Counter) Requeue() bool {
	c.lock()
	defer c.mu.Unlock()
	c.unmark(wounded)
	if c.dead || c.is(inNormal) {
		return false
	}
	c.mark(inNormal)
	return true
}

// Dropped reports whether c is dead, so that the queue it waits in may let go
// of it. Should it be brought back to life, it will queue anew.
func (c *Counter) Dropped() bool {
	c.lock()
	defer c.mu.Unlock()
	if c.dead {
		c.unmark(inNormal)
	}
	return c.dead
}

// Refresh makes c ask the authority again even if its view is fresh, and
// reports whether it is not queued yet, so that the caller must queue it.
func (c *Counter) Refresh() bool {
	c.lock()
	defer c.mu.Unlock()
	if c.dead {
		return false
	}
	c.mark(outdated)
	if c.is(inNormal) {
		return false
	}
	c.mark(inNormal)
	return true
}

// MarkRaise notes that the authority has lost data, and reports whether c has
// something to restore and is not queued yet: the caller must queue it.
func (c *Counter) MarkRaise(now int64) bool {
	c.lock()
	defer c.mu.Unlock()
	defer c.refoldLocked(c.isFolded())
	now = max(now, c.last)
	if c.dead || c.born == untold {
		return false
	}
	if c.win() != nil {
		c.rollLocked(now)
		if len(c.win().list(c.win().known)) == 0 && c.gen() == 0 {
			return false
		}
	} else if c.funnel.known.NS <= now && c.gen() == 0 {
		return false
	}
	c.mark(raising)
	if c.is(inNormal) || c.is(inFlight) {
		return false // in flight: settling finds the mark and asks to queue it
	}
	c.mark(inNormal)
	return true
}

// Pending reports whether the authority has not acknowledged something that was
// admitted or handed back.
func (c *Counter) Pending() bool {
	c.lock()
	defer c.mu.Unlock()
	return c.unsyncedUnits() > 0 || c.returnsLocked()
}

// Unsynced returns the admitted units that the authority has not acknowledged.
func (c *Counter) Unsynced() int64 {
	c.lock()
	defer c.mu.Unlock()
	return c.unsyncedUnits()
}
