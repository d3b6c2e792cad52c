package local

import (
	"runtime"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The calls of a counter beyond the plain check. Each is one step under the
// counter's lock.

// atMost admits what is left, up to n units.
func (c *Counter) atMost(now, n int64, rule *limit.Rule) (granted int64, res limit.Result, ok bool) {
	c.lock()
	if c.dead {
		c.mu.Unlock()
		return 0, res, false
	}
	now = c.enterLocked(now, rule)
	c.decideLocked(now, 0, false) // moves a window on
	if granted = min(n, c.roomLocked(now)); granted > 0 && !c.decideLocked(now, granted, true) {
		granted = 0
	}
	// Of what could not be granted at all, one unit says when to come back.
	res = c.describeLocked(now, min(n, 1), granted > 0 || n == 0)
	wake := c.link() != nil && c.noteLocked()
	c.mu.Unlock()
	if wake {
		c.link().signal()
	}
	return granted, res, true
}

// roomLocked returns how many units would be admitted now.
func (c *Counter) roomLocked(now int64) int64 {
	w := modeWeight(c.mode())
	switch {
	case w < 0:
		return 0
	case w == WeightOpen:
		return c.rule().Limit()
	}
	room := c.describeLocked(now, 0, true).Remaining
	if room == 0 && w > 1 && c.decideLocked(now, 1, false) {
		return 1 // the weight of a single unit is capped, see limit.Rule.Weigh
	}
	return room
}

// refund hands back n units, as far as there are so many and nobody waits who was
// to come after them, and returns how many.
func (c *Counter) refund(now, n int64, rule *limit.Rule) (back int64, ok bool) {
	c.lock()
	if c.dead {
		c.mu.Unlock()
		return 0, false
	}
	now = c.enterLocked(now, rule)
	back = c.handBackLocked(now, n, c.rule().Cost(n), !c.fullLocked(now))
	c.loweredLocked(now)
	c.unlockAndTell()
	return back, true
}

// handBackLocked takes off n units, a funnel's at the given cost: those that the
// authority has been told of only if tell.
func (c *Counter) handBackLocked(now, n int64, cost limit.Span, tell bool) (back int64) {
	if !c.returnsLocked() {
		c.setBackGen(c.gen())
	}
	w, withdrawn := modeWeight(c.mode()), int64(0)
	switch c.alg() {
	case limit.AlgorithmFunnel:
		back, withdrawn = c.funnel.refund(c.rule(), now, n, w, cost, c.leastLocked(now), tell && c.link() != nil)
	case limit.AlgorithmSlidingLog:
		back = c.slog().refund(c.rule(), now, n)
	default:
		c.rollLocked(now)
		back, withdrawn = c.win().refund(c.rule(), n, w)
	}
	if c.link() != nil {
		c.link().withdrawn.Add(withdrawn)
		return back
	}
	c.funnel.put(away{}) // nobody else is to be told
	if c.win() != nil {
		c.win().settleAlone()
	}
	return back
}

// unlockAndTell unlocks c, and has the reconciler look at what it has to tell.
func (c *Counter) unlockAndTell() {
	wake := c.link() != nil && c.noteLocked()
	c.mu.Unlock()
	if wake {
		c.link().signal()
	}
}

// set makes used units count, whatever did before. It is for counters that
// share nothing.
func (c *Counter) set(now, used int64, rule *limit.Rule) (ok bool) {
	c.lock()
	defer c.mu.Unlock()
	if c.dead {
		return false
	}
	now = c.enterLocked(now, rule)
	c.newEra()
	switch c.alg() {
	case limit.AlgorithmFunnel:
		c.funnel = funnel{}
		if used > 0 {
			c.funnel.take(c.rule(), now, used, used, WeightOpen, true)
			c.funnel.compose(c.rule(), 1)
		}
	case limit.AlgorithmSlidingLog:
		*c.slog() = slidingLog{claim: c.slog().claim}
		if used = min(used, c.rule().Limit()); used > 0 {
			c.slog().take(c.rule(), now, used, true)
		}
	default:
		c.rollLocked(now)
		clear(c.win().pend)
		c.win().came(c.rule(), now)
		c.win().pend[0], c.win().pendUnits = min(used, maxPart), min(used, maxPart)
		c.win().sum(c.rule(), 1)
	}
	return true
}

// Renewal is the state of a key that the authority has reset or set.
type Renewal struct {
	Gen       int64
	Born      int64      // see Answer
	Level     limit.Span // funnel
	Buckets   []Bucket   // window
	At        int64      // our time at which that was done, ns
	ServerNow int64      // the authority's
}

// renew takes over what the authority has made of the key. What is pending was
// admitted before, and is dropped. A state that is older than what c knows
// changes nothing.
//
// It reports the reset once more, raising: from then on the authority cannot lose it
// without losing a report as well, which the reconciler notices. Until no view from
// before the reset can matter any more, c is to stay: it may be the only one that
// knows of it.
func (c *Counter) renew(now int64, rule *limit.Rule, a Renewal) (ok bool) {
	c.lock()
	if c.dead {
		c.mu.Unlock()
		return false
	}
	now = c.enterLocked(now, rule)
	wake := a.Gen > c.gen() && c.renewLocked(now, a)
	c.mu.Unlock()
	if wake {
		c.link().signal()
	}
	return true
}

func (c *Counter) renewLocked(now int64, a Renewal) (wake bool) {
	w := modeWeight(c.mode())
	c.newEra()
	c.mark(raising)
	c.note(voided, c.is(inFlight))
	c.setGen(a.Gen)
	c.setHeard(a.ServerNow)
	c.setWitness(a.At + int64(c.rule().Horizon()))
	c.born, c.freshAt = a.Born, max(c.freshAt, a.At)
	c.mark(outdated) // this was no exchange that tells the time
	if c.alg() == limit.AlgorithmFunnel {
		c.link().withdrawn.Add(c.funnel.renew(c.rule(), c.rule().Add(limit.Span{NS: a.At}, a.Level), w))
		c.setApart(c.clocksApart())
	} else {
		c.rollLocked(now)
		c.win().read(c.rule(), a.At, a.ServerNow)
		c.link().withdrawn.Add(c.win().renew(c.rule(), a.Buckets, w))
	}
	c.setUrgentAt((c.rule().Limit() - c.knownUnitsLocked(now)) / (2 * c.link().nodes.Load()))
	return c.noteLocked()
}

// TakeAtMost admits what is left of key at now, up to n units, and returns how
// many it has admitted.
func (t *Table) TakeAtMost(key string, rule *limit.Rule, n, now int64) (granted int64, res limit.Result) {
	made := t.with(key, rule, now, n > 0, func(c *Counter) (ok bool) {
		granted, res, ok = c.atMost(now, n, rule)
		return ok
	})
	res.Source = made.source(res.Source)
	return granted, res
}

// Refund hands n units of key back, as far as the table knows of so many, and
// returns how many.
func (t *Table) Refund(key string, rule *limit.Rule, n, now int64) (back int64) {
	t.with(key, rule, now, false, func(c *Counter) (ok bool) {
		if !c.matches(key, rule) {
			return true // nobody knows whose units strangers share
		}
		back, ok = c.refund(now, n, rule)
		return ok
	})
	return back
}

// Set makes used units of key count, and reports whether it could: not, if there
// is no room for the key. It is for tables that share nothing.
func (t *Table) Set(key string, rule *limit.Rule, used, now int64) (done bool) {
	t.with(key, rule, now, used > 0, func(c *Counter) bool {
		if done = c.matches(key, rule); !done {
			return true // what strangers share is not set
		}
		return c.set(now, used, rule)
	})
	return done
}

// Renew tells the counter of a key what the authority has made of it. If there
// is none, one is made: others may hold older views. A key that there is no room
// for, which the count of overflows tells, is not remembered.
func (t *Table) Renew(key string, rule *limit.Rule, now int64, a Renewal) {
	t.with(key, rule, now, true, func(c *Counter) bool {
		return c.link() == nil || c.renew(now, rule, a) // without a link: made up, or shared by strangers
	})
}

// Touch has the counter of key, created if there is none, ask the authority as
// a check would, and consumes nothing.
func (t *Table) Touch(key string, rule *limit.Rule, now int64) {
	t.with(key, rule, now, true, func(c *Counter) bool {
		c.lock()
		if c.dead {
			c.mu.Unlock()
			return false
		}
		c.enterLocked(now, rule)
		wake := c.link() != nil && c.noteLocked()
		c.mu.Unlock()
		if wake {
			c.link().signal()
		}
		return true
	})
}

// with calls f with the counter of a key, again if it turns out to be dead. If
// there is none it is created or, if not wanted, made up for this call. What it
// returns corrects the source of an answer, and is not to be left again.
func (t *Table) with(key string, rule *limit.Rule, now int64, create bool, f func(*Counter) (ok bool)) found {
	t.names.see(rule)
	h := t.hashOf(key, rule)
	v := t.view.Load()
	defer runtime.KeepAlive(v)
	if c := t.recall(v, h, key, rule); c != nil {
		if f(c) {
			return found{}
		}
		t.recent.Load().drop(c)
	}
	made := t.find(h, key, rule, now, create)
	f(made.c)
	t.leave(made)
	return made
}

// TakeAtMost admits up to n units, see [Table.TakeAtMost]. ok is false if the
// counter is dead.
func (c *Counter) TakeAtMost(now, n int64, rule *limit.Rule) (granted int64, res limit.Result, ok bool) {
	return c.atMost(now, n, rule)
}

// Refund hands back up to n units, see [Table.Refund]. ok is false if the
// counter is dead.
func (c *Counter) Refund(now, n int64, rule *limit.Rule) (back int64, ok bool) {
	return c.refund(now, n, rule)
}

// Renew is [Table.Renew] of one counter. ok is false if it is dead.
func (c *Counter) Renew(now int64, rule *limit.Rule, a Renewal) (ok bool) {
	return c.renew(now, rule, a)
}
