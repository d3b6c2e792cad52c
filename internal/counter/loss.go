package counter

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// This file compares what Redis says of a key with what the counter knew and has sent, to find out whether
// Redis has lost something. What is lost is sent again, see restoring. The algorithms compare the numbers, see
// [algorithm.Replica.Settle]. An answer below them is no loss for one of these reasons:
//
//   - A reset has cleared what is missing: countLocked goes by generations and by when units were booked.
//   - The answer is from before a reset that this node knows of, or is of another rule: answeredLocked.
//   - The counter never heard from Redis: what it knows was only remembered, see forgetRecalledLocked.
//   - The units had leaked before, so that Redis has rightly forgotten them: Settled.Forgotten.
//   - The two clocks drift, and the time of an answer is not known exactly: slack and lateLocked.
//   - Our clock has stood still, or Redis' clock was set: repairKnownLocked, leakedByJumpLocked, and for
//     windows [algorithm.Window.Follow].
//
// That a whole shard was lost is noticed elsewhere: by the number of a batch that is missing in Redis, see
// package reconcile.

// countLocked reports whose content counts: that of an answer, and what c knew. Content counts if it is of
// the later of the two generations, or was born after that began: the reset has cleared older content. If our
// generation or content is later than now, Redis' clock was set back: then births say nothing.
func (c *Counter) countLocked(a *report.Answer) (theirs, ours bool) {
	theirs = a.Gen >= c.gen() || a.Born >= c.gen() || a.ServerNow/1000 < max(c.gen(), c.born)
	return theirs, c.gen() >= a.Gen || c.born >= a.Gen
}

// compareLocked applies the numbers of an answer. It reports whether Redis has lost something that was not noticed before, and has
// the next report restore what is missing.
func (c *Counter) compareLocked(now int64, a report.Answer) (lost bool) {
	s := c.settleLocked(now, a)
	lost = s.Lost && !c.is(restoring) // as long as what Redis lacks was not sent to it, each answer lacks it
	// If Redis has lost a reset, each node that knows of the reset must report it at once. Otherwise
	// others book on top of what the reset has cleared, and the two cannot be separated any more.
	c.note(restoring, c.is(restoring) || s.Lost || s.Forgotten || s.Earlier || a.Gen < c.gen())
	// An answer by a clock that was just set back may have been misread: ask again with the next check.
	c.note(outdated, c.is(outdated) || s.OtherClock)
	return lost
}

// knowLocked records of which generation and when the state is that c knows after an answer, see countLocked. If
// Redis' clock was set back since, the units count as of now: a reset by that clock must be later than they.
func (c *Counter) knowLocked(a report.Answer, theirs, ours bool) {
	c.setGen(max(c.gen(), a.Gen), a.ServerNow)
	if !ours {
		c.born = 0
	}
	if theirs {
		c.born = max(c.born, a.Born)
	}
	c.born, c.freshAt = max(min(c.born, max(a.ServerNow/1000, c.gen())), 0), max(a.At, 0)
}

// settleLocked applies the state of the key in Redis.
func (c *Counter) settleLocked(now int64, a report.Answer) algorithm.Settled {
	r, w := c.rule(), modeMultiplier(c.mode())
	a.Now, a.ClockSlack, a.Older = now, c.part.slack.Load(), a.Gen < c.gen()
	f := c.leaky()
	if f == nil {
		c.rollLocked(now)
		c.forgetRecalledLocked()
		s := c.replica().Settle(r, a, w)
		c.expiredLocked(s.Expired)
		return s
	}
	if c.isAnsweredLocked() {
		a.Slack += (a.At-c.freshAt)/clockDrift + int64(c.lateMicros)*int64(time.Microsecond)
		c.repairKnownLocked(a.Slack)
	}
	c.setClockGap(c.currentClockGap())
	was := r.Sub(f.View, r.Cost(a.Forgiven)) // no reservation was among them
	c.forgetRecalledLocked()
	debt := f.SentDebt() - a.Forgiven
	s := f.Settle(r, a, w)
	if s.Lost && c.leakedByJumpLocked(r, f, a) {
		s.Lost, s.Forgotten = false, true
	}
	if s.Forgotten { // Redis would have forgiven more if it had known what it forgot
		f.ForgiveKnown(r, debt, r.Add(c.ceilingLocked(a.At, c.link().maxDebt), arith.Span{NS: a.At}), a, w)
	}
	late := c.lateMicros
	if c.lateLocked(a.Late); s.Below { // the level before stays in use, and so does its error
		c.lateMicros = max(c.lateMicros, late)
	}
	c.correctedLocked(was, a.Slack)
	f.CapMultiplied(r, now, w)
	return s
}

// forgetRecalledLocked clears what Resume made known: Redis has answered now.
func (c *Counter) forgetRecalledLocked() {
	if c.born == recalled {
		c.born = noAnswer
		c.replica().ForgetKnown(c.rule(), modeMultiplier(c.mode()))
	}
}

// lateLocked records by how much, in ns, the known level may be too late: the next answer may be
// that much below it although no data is lost.
func (c *Counter) lateLocked(late int64) {
	c.lateMicros = uint32(min(max(late, 0)/int64(time.Microsecond)+1, math.MaxUint32))
}

// repairKnownLocked lowers the known level of a leaky bucket in two cases: our clock has stood
// still since the last answer, or Redis' clock was set back before that answer and was corrected
// since, by more than slack ns. Redis' level is lower by the same time. Without this, the
// difference would look like lost data, and be restored for all nodes. If Redis' clock only jumps
// ahead, the level is restored: what leaks by the jump has not really leaked. That is no loss, see
// leakedByJumpLocked.
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

// leakedByJumpLocked reports whether what is missing in an answer has leaked because Redis' clock was
// set ahead since the answer before.
func (c *Counter) leakedByJumpLocked(r *arith.Rule, f *algorithm.LeakyBucket, a report.Answer) bool {
	missing := r.Sub(f.Known, r.Add(a.Level, arith.Span{NS: a.At})).Ceil()
	return c.freshAt <= c.part.aheadAt.Load() && int64(missing) <= c.part.aheadBy.Load()+a.Slack
}

// currentClockGap returns, in ns, how far our clock has fallen behind Redis', see Link.SetLag and
// Part.Step.
func (c *Counter) currentClockGap() int64 { return c.link().lag.Load() + c.part.back.Load() }

// clockDrift bounds how fast two clocks drift apart: 1 in 2,000, far more than the 1 in 10,000 of a
// bad oscillator.
const clockDrift = 2000

// forgetGenerationLocked forgets a generation that does not matter any longer by Redis' clock,
// because nothing from before it can count. What we know of that generation does not count either.
// To restore it in Redis would undo what was booked since.
func (c *Counter) forgetGenerationLocked(now, server int64) {
	if server-c.past().serverNow > int64(c.rule().Horizon()) && c.blankLocked(now) {
		c.setGen(0, server)
	}
}

// blankLocked reports whether nothing that Redis has answered before counts any more.
func (c *Counter) blankLocked(now int64) bool {
	c.rollLocked(max(now, c.last))
	return c.replica().Blank(now)
}
