package local

import "github.com/hybridlimit/hybridlimit/limit"

// This file is for those who keep counters themselves, without a table, such as a
// simulator.

// NewCounter returns a counter that no table holds. link may be nil.
func NewCounter(key string, rule *limit.Rule, link *Link, now int64) *Counter {
	return newCounter(key, rule, 0, link, now)
}

// Take asks a counter directly for n ≥ 0 units at now. ok is false if the
// counter is dead: another one has taken its place.
func (c *Counter) Take(now, n int64, rule *limit.Rule) (res limit.Result, ok bool) {
	res, how := c.ask(now, n, rule, true, 0)
	return res, how != gone
}

// Slots are what the counters of a [Table] answer from when nothing else is to be
// done.
type Slots struct{ lodge lodge }

// NewSlots returns slots for the counters of a link, which may be nil.
func NewSlots(link *Link) *Slots {
	s := new(Slots)
	s.lodge.init(link, 0)
	s.lodge.rows.Load().bringMiddles() // there is no table that would see to it
	return s
}

// Allow is [Table.Allow] of one unit of a counter, which gets a slot as early as can
// be. ok is false if the counter is dead.
func (s *Slots) Allow(c *Counter, now int64, rule *limit.Rule) (allowed bool, src limit.Source, ok bool) {
	if at := c.lodging(); at != nil {
		if allowed, src, ok = s.lodge.answerKey(at, c.Key(), c.hash, rule, now); ok {
			return allowed, src, true
		}
	}
	if src, no := c.denies(now, 1, rule); no {
		return false, src, true
	}
	season := s.lodge.season.n.Load()
	allowed, src, how := c.check(now, 1, rule, 0)
	s.lodge.lend(c, nil, rule, season, 0, now)
	return allowed, src, how != gone
}

// Bound is a counter that has lent, or may lend, to one who asks it often, as it does to a
// [Handle].
type Bound struct {
	pocket pocket
	c      *Counter
	slots  *Slots
}

// Bind returns what c lends to under a rule.
func (s *Slots) Bind(c *Counter, rule *limit.Rule) *Bound {
	return &Bound{pocket{purse: &purse{rule: rule, lodge: &s.lodge}}, c, s}
}

// Allow is [Slots.Allow]. The time must not go back.
func (b *Bound) Allow(now int64) (allowed bool, src limit.Source, ok bool) {
	p, c, l := &b.pocket, b.c, &b.slots.lodge
	if _, src, v := p.ask(now); v != Unanswered {
		return v == Admitted, src, true
	}
	if src, no := c.denies(now, 1, p.rule); no {
		return false, src, true
	}
	season := l.season.n.Load()
	if v, src := p.claim(c, 1, now); v != Unanswered {
		return v == Admitted, src, true
	}
	allowed, src, how := c.checkHeld(now, 1, p.rule, 0)
	l.lend(c, p, p.rule, season, 0, now)
	return allowed, src, how != gone
}

// Denies reports whether a check for n units at now (ns) would take the counter to
// refuse without asking it, as [Table.Allow] may.
func (c *Counter) Denies(now, n int64, rule *limit.Rule) bool {
	_, no := c.denies(now, n, rule)
	return no
}

// Forget marks c dead if no more than a level that does not deny would be lost
// with it, and reports whether it did: what a table without room does.
func (c *Counter) Forget(now int64) bool {
	c.lock()
	defer c.mu.Unlock()
	c.dead = c.dead || c.worthLocked(now) <= worthPartial
	return c.dead
}
