package table

import (
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeAtMost admits what is left of key at now, up to n units, and returns how
// many it has admitted.
func (t *Table) TakeAtMost(key string, rule *limit.Rule, n, now int64) (granted int64, res limit.Result) {
	made := t.with(key, rule, now, n > 0, func(c *counter.Counter) (ok bool) {
		granted, res, ok = c.TakeAtMost(now, n, rule)
		return ok
	})
	res.Source = made.source(res.Source)
	return granted, res
}

// Refund hands n units of key back, as far as the table knows of so many, and
// returns how many.
func (t *Table) Refund(key string, rule *limit.Rule, n, now int64) (back int64) {
	t.with(key, rule, now, false, func(c *counter.Counter) (ok bool) {
		if !c.Matches(key, rule) {
			return true // it is an overflow counter: whose units it has is not known
		}
		back, ok = c.Refund(now, n, rule)
		return ok
	})
	return back
}

// Set makes used units of key count, and reports whether it did: it does not if there
// is no room for the key. It is for tables without a link.
func (t *Table) Set(key string, rule *limit.Rule, used, now int64) (done bool) {
	t.with(key, rule, now, used > 0, func(c *counter.Counter) bool {
		if done = c.Matches(key, rule); !done {
			return true // an overflow counter is not set for one of its keys
		}
		return c.Set(now, used, rule)
	})
	return done
}

// Renew passes on to the counter of a key what the authority has reset or set. If
// there is none, one is created, because other nodes may hold older views. If there
// is no room for the key, which [Stats].Overflow counts, nothing is remembered.
func (t *Table) Renew(key string, rule *limit.Rule, now int64, a counter.Renewal) {
	t.with(key, rule, now, true, func(c *counter.Counter) bool {
		return !c.IsShared() || c.Renew(now, rule, a) // without a link it is an overflow counter
	})
}

// Touch makes the counter of key, created if there is none, ask the authority as
// a check would. It consumes nothing.
func (t *Table) Touch(key string, rule *limit.Rule, now int64) {
	t.with(key, rule, now, true, func(c *counter.Counter) bool {
		return c.Touch(now, rule)
	})
}

// Reserve books n units of key if the terms allow it, see the Limiter of package local, and
// returns the answer: RetryAfter is when they may be used, or when to ask again.
// booked is nil if they are not booked.
func (t *Table) Reserve(key string, rule *limit.Rule, n, now int64, terms counter.Terms) (res limit.Result, booked *counter.Booking) {
	made := t.with(key, rule, now, n > 0, func(c *counter.Counter) (ok bool) {
		asked := terms
		asked.Claim = terms.Claim && c.Matches(key, rule) // keys that share an overflow counter do not claim it
		res, booked, ok = c.Reserve(now, n, rule, asked)
		return ok
	})
	res.Source = made.source(res.Source)
	return res, booked
}

// Unclaim ends the claim of a reservation, see [counter.Terms].
func (t *Table) Unclaim(key string, rule *limit.Rule, now int64) {
	t.with(key, rule, now, false, func(c *counter.Counter) bool {
		return !c.Matches(key, rule) || c.Unclaim(now)
	})
}

// Estimate returns how many ns it takes, at the least, until n units of key can
// have been admitted after others that ask for ahead units in all.
func (t *Table) Estimate(key string, rule *limit.Rule, ahead, n, now int64) (wait int64) {
	t.with(key, rule, now, false, func(c *counter.Counter) (ok bool) {
		wait, ok = c.Estimate(now, ahead, n, rule)
		return ok
	})
	return wait
}

// Cancel hands back what a reservation has booked, as far as it still counts and no
// booking waits behind it. Nothing is handed back if the key was reset or set since,
// in this table. Call it once for each booking.
func (t *Table) Cancel(key string, rule *limit.Rule, now int64, b *counter.Booking) (back int64) {
	t.with(key, rule, now, false, func(c *counter.Counter) (ok bool) {
		if !c.Matches(key, rule) {
			return true
		}
		back, _, ok = c.Cancel(now, rule, b)
		return ok
	})
	return back
}
