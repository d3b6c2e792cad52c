package counter

import (
	"math"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// New returns a counter of a key. hash is what the index has it under.
func New(key string, rule *limit.Rule, hash uint64, group *Group, now int64) *Counter {
	part, link, clock := (*Part)(nil), group.Link, algorithm.Clock{Sure: true}
	if link != nil {
		part = link.partOf(key)
		clock = part.reading()
	} else if arith.Of(rule).Calendar != nil {
		clock.Off = group.wall.Load()
	}
	c := newCounter(rule, now, clock)
	c.hash, c.group, c.part, c.last, c.born = hash, group, part, math.MinInt64, noAnswer
	c.key, c.hashed = KeyOf(key)
	if !c.hashed {
		c.key = strings.Clone(key) // key may be part of a large string
	}
	c.setMode(packMode(1, false))
	if link != nil {
		c.setUrgentAt(urgentFrom(rule.Limit(), link.nodes.Load()))
		if part.newlyHears(now) {
			c.setUrgentAt(1)
		}
		c.setMode(part.mode.Load())
		c.freshAt = max(now, 0)
		c.notice = link.kept(c, rule, part)
	}
	return c
}

// MakeUp returns a counter for one call about a key that has none. It decides as a new one, but
// enters no queue of the link.
func MakeUp(key string, rule *limit.Rule, group *Group, now int64) *Counter {
	c := New(key, rule, 0, group, now)
	c.mark(inNormal)
	return c
}

// Matches reports whether c counts key under a rule of this name and algorithm.
func (c *Counter) Matches(key string, rule *limit.Rule) bool {
	if r := c.latestRule.Load(); r != rule && (arith.Of(r).Hash != arith.Of(rule).Hash || arith.Of(r).Algorithm != arith.Of(rule).Algorithm || r.Name() != rule.Name()) {
		return false
	}
	return c.hasKey(key)
}

// Check decides for n units. ok is false if c was dropped: then nothing was consumed.
func (c *Counter) Check(now, n int64, rule *limit.Rule) (allowed bool, src limit.Source, ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return false, 0, false
	}
	if allowed = c.judgeLocked(now, n); allowed {
		c.bookLocked(now, n)
	} else if n == 1 {
		c.refusedLocked(now)
	}
	if src = c.sourceLocked(); !allowed && c.notice != nil {
		src = c.refusalSourceLocked(now, n)
	}
	c.unlockAndNote()
	return allowed, src, true
}

// Ask is Check with the whole answer, in which a dry run admits what its rule refuses. Without book
// it consumes nothing.
func (c *Counter) Ask(now, n int64, rule *limit.Rule, book bool) (res limit.Result, ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return res, false
	}
	allowed := c.judgeLocked(now, n)
	if allowed && book {
		c.bookLocked(now, n)
	}
	res = decision.Judged(rule, c.answerLocked(now, n, allowed))
	if !allowed && n == 1 {
		c.refusedLocked(now)
	}
	c.unlockAndNote()
	return res, true
}

// Refuses reports whether c refuses n units, and with what answer. It consumes nothing. It is for a
// caller who asks Redis if c does not refuse: only a refusal makes c ask Redis for news. What c knows
// does not count in an outage, nor while Redis cannot use the key. ok is false if c was dropped.
func (c *Counter) Refuses(now, n int64, rule *limit.Rule) (res limit.Result, refused, ok bool) {
	if now, ok = c.enter(now, rule); !ok {
		return res, false, false
	}
	if c.is(quarantined) || modeDegraded(c.part.mode.Load()) || c.judgeLocked(now, n) {
		c.unlock()
		return res, false, true
	}
	res = decision.Judged(rule, c.answerLocked(now, n, false))
	if n == 1 {
		c.refusedLocked(now)
	}
	c.unlockAndNote()
	return res, true, true
}

// enter locks c and prepares it for a call. at is the time to decide at. ok is false if c was
// dropped: then it is not locked.
func (c *Counter) enter(now int64, rule *limit.Rule) (at int64, ok bool) {
	if c.lock(now); c.dead {
		c.mu.Unlock()
		return 0, false
	}
	return c.enterLocked(now, rule), true
}

// enterLocked prepares c for a call and returns the time to decide at.
func (c *Counter) enterLocked(now int64, rule *limit.Rule) int64 {
	now, c.asked = max(now, c.last, 0), c.last != math.MinInt64 // many new keys are used only once
	c.unmark(denied | revoked)
	c.dropHistoryLocked(now)
	p := c.part
	if p == nil {
		c.last = now
		if rule != c.latestRule.Load() {
			c.adoptLocked(rule, now)
		}
		return now
	}
	c.followClockLocked(now) // before c.last changes: the time of the latest check is needed
	c.last = now
	if rule != c.latestRule.Load() {
		c.adoptLocked(rule, now)
	}
	c.followModeLocked()
	return now
}

// followModeLocked applies the mode of the link, which c must have.
func (c *Counter) followModeLocked() {
	m := c.part.mode.Load()
	if c.is(quarantined) && !modeDegraded(m) {
		m = c.part.link.fallback.Load()
	}
	if m != c.mode() {
		c.switchModeLocked(m)
	}
}

// switchModeLocked changes the cost multiplier. A greater one applies at once, also to
// unacknowledged units. A smaller one waits for Redis' answer, because Redis does not know yet what
// was admitted under the greater one.
func (c *Counter) switchModeLocked(m int64) {
	was, is := modeMultiplier(c.mode()), modeMultiplier(m)
	if is == 1 && was > 1 && c.unsyncedUnits() > 0 {
		c.setMode(packMode(was, modeDegraded(m)))
		return
	}
	c.setMode(m)
	c.replica().SetMultiplier(c.rule(), c.last, was, is)
}

// adoptLocked continues counting under another rule of the same name. If only the limit differs,
// what is counted does not change. Otherwise it is converted to the new periods or buckets, rounded
// up, so that no unit is lost.
func (c *Counter) adoptLocked(rule *limit.Rule, now int64) {
	old, is := c.rule(), arith.Of(rule)
	c.latestRule.Store(rule)
	if f := c.leaky(); f != nil && c.link() != nil && is.Limit < old.Limit {
		f.Lowered(old.Limit)
	}
	if !old.SameShape(is) {
		c.expiredLocked(c.state().Reshape(old, is, now, modeMultiplier(c.mode())))
		if h := c.history; h != nil { // these are in fractions of the old rule
			h.owed, h.refunded = arith.Span{}, arith.Span{NS: int64(h.refunded.Ceil())}
		}
		if c.link() != nil {
			c.mark(outdated)
		}
	}
	if w := modeMultiplier(c.mode()); w > 1 && is.Limit > old.Limit {
		if f := c.leaky(); f != nil {
			f.Restored(is, now)
		} else {
			c.replica().SetMultiplier(is, now, w, w)
		}
	}
}

// decideLocked reports whether n units are admitted. It moves a window on to now.
func (c *Counter) decideLocked(now, n int64) bool {
	r, w := c.rule(), modeMultiplier(c.mode())
	c.rollLocked(now)
	switch {
	case n == 0:
		return true
	case n > r.Limit, w < 0:
		return false
	}
	return w == MultiplierOpen || c.state().Fits(r, now, r.Multiplied(n, w))
}

// describeLocked returns the whole answer to a check for n units at now.
func (c *Counter) describeLocked(now, n int64, allowed bool) (res limit.Result) {
	w := modeMultiplier(c.mode())
	res = c.state().Describe(c.rule(), now, n, w, allowed)
	if w < 0 && !allowed && n <= c.rule().Limit {
		res.Remaining, res.RetryAfter = 0, ClosedRetry
	}
	res.Source = c.sourceLocked()
	return res
}

// judgeLocked is decideLocked for a check that obeys notices. Reservations and waiters do not obey
// them.
func (c *Counter) judgeLocked(now, n int64) (allowed bool) {
	return c.decideLocked(now, n) && (c.notice == nil || n == 0 || c.noticeLocked(now) == nil)
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

// refusalSourceLocked returns the source of a refusal of n units. It is a notice if c would admit
// them without it.
func (c *Counter) refusalSourceLocked(now, n int64) limit.Source {
	if c.notice != nil && c.noticeLocked(now) != nil && c.decideLocked(now, n) {
		return limit.SourceNotice
	}
	return c.sourceLocked()
}

// refuseFor is the longest time, in ns, for which a lease refuses. During that time the counter
// does not move its window on, and the sweep does not see it as used.
const refuseFor = 10_000_000_000

// refusedLocked records that c has refused one unit at now, and until when it will refuse.
func (c *Counter) refusedLocked(now int64) {
	r, w := c.rule(), modeMultiplier(c.mode())
	until, fits := now+refuseFor, int64(math.MaxInt64)
	switch alone := c.notice != nil && c.refusalSourceLocked(now, 1) == limit.SourceNotice; {
	case alone:
		fits = c.notice.until
	case w >= 0 && r.Limit > 0:
		if c.part != nil {
			_, full := c.replica().FullUntil(r, now)
			c.note(denied, full)
		}
		fits = c.state().FitsAt(r, now, r.Multiplied(1, w))
	}
	if c.part != nil {
		// A refusing key must still ask Redis, to learn of a reset or a refund.
		wait := c.askAfterLocked()
		if until = c.freshAt + wait; until <= now {
			until = now + wait // this check has queued it for a report
		}
	}
	until = min(until, fits)
	if until > now {
		c.refusesUntil = until
	}
}
