package counter

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// This file has what a counter learns from calls that Redis decides, and how their units are handed
// back. Such a call books in Redis by itself, beside the reports of the counter.

// unlearnt is what calls have booked in Redis while the counter could not apply their answers, see
// Learn. Units of it that are handed back are subtracted when the answer is applied, because the
// counter does not count them before.
type unlearnt struct {
	answer report.Answer // the latest of them
	recv   int64         // when it was received, ns
	gen    int64         // generation of the first: a reset since then has cleared its units
	units  int64         // booked by these calls, and not handed back
	owed   int64         // handed back since
}

// Learn applies the state of the key in Redis at the end of another call than a report, which began at
// a.Sent, ended at now and is of a.Rule. Answers to reports may overtake it, so it counts only if it is
// of a later generation, or if its newest unit was booked later than what c knows. It does not count
// while units of an outage count several times, nor before Redis' clock is known: a window could not tell
// which of its buckets the answer is about. Then it is applied at the end of the next exchange, as it is
// if a report is under way: Redis may have booked that report before the call, or after. If c may be
// missing something, it asks again with the next check. ok is false if c was dropped.
func (c *Counter) Learn(now int64, a report.Answer) (out Outcome, ok bool) {
	if now, ok = c.enter(now, c.latestRule.Load()); !ok { // a.Rule may have been replaced meanwhile
		return out, false
	}
	defer c.unlock()
	out, applied := c.learnLocked(now, a)
	if !applied {
		c.mark(outdated)
		c.putOffLocked(now, a)
	}
	return out, true
}

// learnLocked applies an answer that was received at recv, see Learn. applied is false if it cannot be
// applied before the next exchange has ended.
func (c *Counter) learnLocked(recv int64, a report.Answer) (out Outcome, applied bool) {
	off, sure := c.part.clock()
	a.At = min(max(a.ServerNow-off, a.Sent), recv)
	a.Slack, a.Late = recv-a.Sent+int64(time.Millisecond), min(a.At-a.Sent, max(c.part.slack.Load(), 0)+int64(time.Millisecond))
	if a.Gen < c.gen() {
		c.forgetGenerationLocked(a.At, a.ServerNow) // Redis has, if the key was idle for long
	}
	switch {
	case !sure, c.is(inFlight | quarantined), c.mode() != c.part.mode.Load():
		return out, false
	case a.ServerNow > recv+off+max(c.part.slack.Load(), 0)+algorithm.ClockStep:
		c.mark(outdated) // Redis' clock was set back since: its buckets are other ones now
		return out, true
	case a.Gen < c.gen():
		c.mark(outdated)
		return out, a.Born <= c.born // later units of an earlier generation: Redis has lost a later one
	case a.Gen == c.gen() && a.Born < c.born:
		c.mark(outdated)
	case a.Gen == c.gen() && a.Born == c.born && !c.isMoreLocked(&a):
		if c.unsyncedUnits() == 0 {
			c.freshAt = max(c.freshAt, a.At) // nothing has been booked since
		}
	default:
		was := c.freshAt
		if out = c.answeredLocked(recv, a); c.unsyncedUnits() > 0 {
			c.freshAt = was // their report is due by it
		}
	}
	return out, true
}

// isMoreLocked reports whether an answer has more units than c knows, although both have the same
// newest unit. Redis may execute two calls in one µs of its clock.
func (c *Counter) isMoreLocked(a *report.Answer) bool {
	if a.Own == 0 {
		return false
	}
	if f := c.leaky(); f != nil {
		return f.Known.Less(c.rule().Add(arith.Span{NS: a.At}, a.Level))
	}
	_, known := c.replica().KnownState(c.rule(), c.last)
	return sumOfBuckets(a.Buckets) > sumOfBuckets(known)
}

func sumOfBuckets(list []report.Bucket) (sum int64) {
	for _, b := range list {
		sum = min(sum+b.Units, algorithm.MaxUnits)
	}
	return sum
}

// putOffLocked keeps an answer that cannot be applied yet. Of several the latest counts: it has the
// units of the others.
func (c *Counter) putOffLocked(now int64, a report.Answer) {
	if a.Own == 0 {
		return
	}
	h := c.keepHistoryLocked(now + int64(c.rule().Horizon())) // after that its units do not count
	u := h.unlearnt
	if u == nil {
		u = &unlearnt{gen: a.Gen}
		h.unlearnt = u
	}
	if u.units+u.owed == 0 || isLater(&a, &u.answer) {
		u.answer, u.recv = a, now
	}
	u.units = min(u.units+a.Own, algorithm.MaxUnits)
}

// isLater reports whether a is not earlier than b.
func isLater(a, b *report.Answer) bool {
	switch {
	case a.Gen != b.Gen:
		return a.Gen > b.Gen
	case a.Born != b.Born:
		return a.Born > b.Born
	}
	// Both were booked in the same µs.
	if len(a.Buckets)+len(b.Buckets) == 0 {
		return a.ServerNow+a.Level.NS >= b.ServerNow+b.Level.NS
	}
	return sumOfBuckets(a.Buckets) >= sumOfBuckets(b.Buckets)
}

// catchUpLocked applies the answer that was put off, at the end of an exchange that had the outcome
// out, and an answer of Redis' time server. If the exchange had a later answer, that has the units
// already. Then it subtracts what was handed back of these units.
func (c *Counter) catchUpLocked(now, server int64, out Outcome) Outcome {
	u := c.past().unlearnt
	if u == nil {
		return out
	}
	now = max(now, c.last)
	// The exchange may have had a later answer, of an earlier generation: Redis forgets them.
	if a := &u.answer; !(a.ServerNow < server && a.Gen > c.gen() && a.Gen <= c.born && a.Born < c.born) {
		learnt, applied := c.learnLocked(u.recv, u.answer)
		if out.add(learnt); !applied {
			return out // the next exchange is later than these units
		}
	}
	if c.history != nil { // the answer may have dropped it
		c.history.unlearnt = nil
	}
	if u.owed > 0 {
		c.withHistory() // backGen matters
		_, taken := c.returnLocked(now, algorithm.Refund{Units: u.owed, Cost: c.rule().Cost(u.owed), Reported: !c.fullLocked(now)})
		c.history.backGen = min(c.history.backGen, u.gen)
		c.link().Unreturned.Add(u.owed - taken)
		out.add(c.queueLocked(now, Outcome{}))
	}
	return out
}

// add adds the outcome of another answer.
func (o *Outcome) add(p Outcome) {
	o.Lost, o.Again, o.Urgent = o.Lost || p.Lost, o.Again || p.Again, o.Urgent || p.Urgent
	o.First, o.Forget = o.First || p.First, o.Forget || p.Forget
	o.Overshoot = max(o.Overshoot, p.Overshoot)
	if p.Notice != nil {
		o.Notice = p.Notice
	}
}

// oweLocked notes that up to n units are handed back of those whose answers were put off. It returns
// how many.
func (c *Counter) oweLocked(n int64) (owed int64) {
	u := c.past().unlearnt
	if u == nil {
		return 0
	}
	owed = min(n, u.units)
	u.units, u.owed = u.units-owed, u.owed+owed
	return owed
}

// owedLocked returns how many units are to be subtracted when an answer that was put off is applied.
func (c *Counter) owedLocked() int64 {
	if u := c.past().unlearnt; u != nil {
		return u.owed
	}
	return 0
}

// Owed returns how many units were handed back that are subtracted when an answer that was put off is
// applied, see Learn.
func (c *Counter) Owed() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owedLocked()
}

// returnsLocked reports whether there are refunds that Redis has not acknowledged.
func (c *Counter) returnsLocked() bool { return c.hasReturns() || c.owedLocked() > 0 }

// AwaitReturns is for a caller whom Redis has refused: it counts units that were handed back here until
// they are reported. If there are any, their report is urgent from now on, and ended is closed when an
// exchange of c has ended. It is nil if there are none, and if Redis cannot be reached. After two
// exchanges Redis has subtracted what was handed back before this call: one may be under way already.
func (c *Counter) AwaitReturns(now int64) (ended <-chan struct{}) {
	return c.await(now, c.returnsLocked)
}

// AwaitReport is AwaitReturns for a caller who is about to set the units of the key: it counts units that
// were admitted here, too. One that reached Redis after the new state would be added to it.
func (c *Counter) AwaitReport(now int64) (ended <-chan struct{}) {
	return c.await(now, func() bool { return c.unsyncedUnits() > 0 || c.returnsLocked() })
}

// await makes the report of c urgent if there is something to wait for. ended is closed when an exchange of c
// has ended; it is nil if there is nothing, or Redis cannot be reached.
func (c *Counter) await(now int64, unreported func() bool) (ended <-chan struct{}) {
	c.lock(now)
	if c.dead || c.part == nil || c.is(quarantined) || modeDegraded(c.part.mode.Load()) || !unreported() || c.link().closed.Load() {
		c.unlock()
		return nil
	}
	h, wake := c.withHistory(), false
	if h.ended == nil {
		h.ended = make(chan struct{})
	}
	if !c.is(inFlight) && !(c.is(inUrgent) && c.lingerUntil == 0) {
		c.mark(inUrgent)
		c.lingerUntil = 0
		wake = c.link().push(c, true)
	}
	ended = h.ended
	c.unlock()
	if wake {
		c.link().signal()
	}
	return ended
}

// Returned returns how often Redis has acknowledged refunds of c. It may begin anew after some seconds.
func (c *Counter) Returned() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.past().returned
}

// exchangeEndedLocked wakes the callers of AwaitReturns.
func (c *Counter) exchangeEndedLocked() {
	if c.history != nil && c.history.ended != nil {
		close(c.history.ended)
		c.history.ended = nil
	}
}
