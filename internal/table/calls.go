package table

import (
	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The calls of a counter besides the plain check. Each is one step under the
// lock of the counter.

// atMost admits what is left, up to n units.
func (c *Counter) atMost(now, n int64, rule *limit.Rule) (granted int64, res limit.Result, ok bool) {
	c.lock(now)
	if c.dead {
		c.mu.Unlock()
		return 0, res, false
	}
	now = c.enterLocked(now, rule)
	c.decideLocked(now, 0, false) // moves a window on
	if granted = min(n, c.roomLocked(now)); granted > 0 && !c.decideLocked(now, granted, true) {
		granted = 0
	}
	// If nothing could be granted, RetryAfter is that of one unit.
	res = c.describeLocked(now, min(n, 1), granted > 0 || n == 0)
	wake := c.link() != nil && c.noteLocked()
	c.unlock()
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

// refund hands back n units, as far as so many count and no reservation was made
// behind them, and returns how many.
func (c *Counter) refund(now, n int64, rule *limit.Rule) (back int64, ok bool) {
	c.lock(now)
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

// handBackLocked takes off n units, of a funnel at the given cost. Units that the
// authority has been told of are taken off only if tell is set.
func (c *Counter) handBackLocked(now, n int64, cost arith.Span, tell bool) (back int64) {
	if !c.returnsLocked() {
		c.setBackGen(c.gen())
	}
	c.rollLocked(now)
	back, withdrawn := c.state().Refund(c.rule(), now, n, modeWeight(c.mode()), cost, c.leastLocked(now), tell && c.link() != nil)
	if c.link() != nil {
		c.link().withdrawn.Add(withdrawn)
		return back
	}
	c.state().SettleAlone()
	return back
}

// unlockAndTell hands c to the reconciler if there is something to report, and unlocks it.
func (c *Counter) unlockAndTell() {
	wake := c.link() != nil && c.noteLocked()
	c.unlock()
	if wake {
		c.link().signal()
	}
}

// set makes used units count instead of what counted before. It is for counters
// without a link.
func (c *Counter) set(now, used int64, rule *limit.Rule) (ok bool) {
	c.lock(now)
	defer c.unlock()
	if c.dead {
		return false
	}
	now = c.enterLocked(now, rule)
	c.newEra()
	c.rollLocked(now)
	c.state().Set(c.rule(), now, used)
	return true
}

// Renewal is the state of a key that the authority has reset or set.
type Renewal struct {
	Gen       int64
	Born      int64      // see Answer
	Level     arith.Span // leaky bucket
	Buckets   []Bucket   // window
	At        int64      // our time at which that was done, ns
	ServerNow int64      // the authority's time then, ns
}

// renew takes over a state that the authority has reset or set. What is pending was
// admitted before, and is dropped. A state that is older than what c knows changes
// nothing.
//
// c then reports the reset once more, raising: from then on the authority cannot lose
// the reset without losing a report as well, which the reconciler notices. c is not
// forgotten as long as views from before the reset can matter: it may be the only
// counter that knows of it.
func (c *Counter) renew(now int64, rule *limit.Rule, a Renewal) (ok bool) {
	c.lock(now)
	if c.dead {
		c.mu.Unlock()
		return false
	}
	now = c.enterLocked(now, rule)
	wake := a.Gen > c.gen() && c.renewLocked(now, a)
	c.unlock()
	if wake {
		c.link().signal()
	}
	return true
}

func (c *Counter) renewLocked(now int64, a Renewal) (wake bool) {
	c.newEra()
	c.mark(raising)
	c.note(voided, c.is(inFlight))
	c.setGen(a.Gen)
	c.setHeard(a.ServerNow)
	c.setWitness(a.At + int64(c.rule().Horizon()))
	c.born, c.freshAt = a.Born, max(c.freshAt, a.At)
	c.mark(outdated) // a reset is no exchange that measures the clock
	c.setApart(c.clocksApart())
	c.rollLocked(now)
	is := algorithm.Answer{Level: a.Level, Buckets: a.Buckets, At: a.At, ServerNow: a.ServerNow}
	c.link().withdrawn.Add(c.state().Renew(c.rule(), is, modeWeight(c.mode())))
	c.setUrgentAt((c.rule().Limit() - c.state().KnownUnits(c.rule(), now)) / (2 * c.link().nodes.Load()))
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
			return true // it is an overflow counter: whose units it has is not known
		}
		back, ok = c.refund(now, n, rule)
		return ok
	})
	return back
}

// Set makes used units of key count, and reports whether it did: it does not if there
// is no room for the key. It is for tables without a link.
func (t *Table) Set(key string, rule *limit.Rule, used, now int64) (done bool) {
	t.with(key, rule, now, used > 0, func(c *Counter) bool {
		if done = c.matches(key, rule); !done {
			return true // an overflow counter is not set for one of its keys
		}
		return c.set(now, used, rule)
	})
	return done
}

// Renew passes on to the counter of a key what the authority has reset or set. If
// there is none, one is created, because other nodes may hold older views. If there
// is no room for the key, which [Stats].Overflow counts, nothing is remembered.
func (t *Table) Renew(key string, rule *limit.Rule, now int64, a Renewal) {
	t.with(key, rule, now, true, func(c *Counter) bool {
		return c.link() == nil || c.renew(now, rule, a) // without a link it is an overflow counter
	})
}

// Touch makes the counter of key, created if there is none, ask the authority as
// a check would. It consumes nothing.
func (t *Table) Touch(key string, rule *limit.Rule, now int64) {
	t.with(key, rule, now, true, func(c *Counter) bool {
		c.lock(now)
		if c.dead {
			c.mu.Unlock()
			return false
		}
		c.enterLocked(now, rule)
		wake := c.link() != nil && c.noteLocked()
		c.unlock()
		if wake {
			c.link().signal()
		}
		return true
	})
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
