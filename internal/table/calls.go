package table

import (
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeAtMost admits up to n units of key at now, as many as are left, and returns how many.
func (t *Table) TakeAtMost(key string, rule *limit.Rule, n, now int64) (granted int64, res limit.Result) {
	t.with(key, rule, now, n > 0, func(c *counter.Counter) (ok bool) {
		granted, res, ok = c.TakeAtMost(now, n, rule)
		return ok
	})
	return granted, res
}

// Refund gives back up to n units of key, no more than the table has counted, and returns how many.
func (t *Table) Refund(key string, rule *limit.Rule, n, now int64) (back int64) {
	t.with(key, rule, now, false, func(c *counter.Counter) (ok bool) {
		if !c.Matches(key, rule) {
			return true // an overflow counter: it does not know whose units it has
		}
		back, _, ok = c.Refund(now, n, rule)
		return ok
	})
	return back
}

// Charge counts up to n units of key, whether they fit or not, and returns how many, see
// [counter.Counter.Charge]. Units of a key without room are not counted, and have the source
// [limit.SourceLocal]: the keys that share its overflow counter must not pay for it.
func (t *Table) Charge(key string, rule *limit.Rule, n, now int64) (charged int64, src limit.Source) {
	t.with(key, rule, now, n > 0, func(c *counter.Counter) (ok bool) {
		if !c.Matches(key, rule) {
			charged, src = 0, limit.SourceLocal
			return true
		}
		charged, src, ok = c.Charge(now, n, rule, t.maxDebt)
		return ok
	})
	return charged, src
}

// Set replaces what is counted of key by used units, and reports whether it did: it does not if
// there is no room for the key. It is for tables without a link.
func (t *Table) Set(key string, rule *limit.Rule, used, now int64) (done bool) {
	t.with(key, rule, now, used > 0, func(c *counter.Counter) bool {
		if done = c.Matches(key, rule); !done {
			return true // an overflow counter is not set for one of its keys
		}
		return c.Set(now, used, rule)
	})
	return done
}

// Renew passes on to the counter of a key what Redis has reset or set. If there is no counter, one
// is created, because other nodes may hold older views. If there is no room for the key, which
// [Stats].Overflow counts, nothing is remembered.
func (t *Table) Renew(key string, rule *limit.Rule, now int64, a report.Answer) {
	t.with(key, rule, now, true, func(c *counter.Counter) bool {
		return !c.IsShared() || c.Renew(now, rule, a) // a counter without a link is an overflow counter
	})
}

// Refuses reports whether what is known of key refuses n units, see [counter.Counter.Refuses]. It
// creates the counter if there is none. Without room for the key nothing is known.
func (t *Table) Refuses(key string, rule *limit.Rule, n, now int64) (res limit.Result, refused bool) {
	t.with(key, rule, now, true, func(c *counter.Counter) (ok bool) {
		if !c.Matches(key, rule) {
			return true
		}
		res, refused, ok = c.Refuses(now, n, rule)
		return ok
	})
	return res, refused
}

// Learn passes on to the counter of a key what Redis has answered to a call that was no report, see
// [counter.Counter.Learn]. It returns the counter, nil if there is none, and what is to be done.
func (t *Table) Learn(key string, now int64, a report.Answer) (of *counter.Counter, out counter.Outcome) {
	if of = t.Find(key, a.Rule); of != nil {
		out, _ = of.Learn(now, a) // it may have been dropped meanwhile
	}
	return of, out
}

// Touch makes the counter of key ask Redis as a check would. It creates the counter if there is
// none, and consumes nothing.
func (t *Table) Touch(key string, rule *limit.Rule, now int64) {
	t.with(key, rule, now, true, func(c *counter.Counter) bool {
		return c.Touch(now, rule)
	})
}

// Reserve books n units of key if the terms allow it, see the Limiter of package local, and returns
// the answer. RetryAfter is when the units may be used or, if they are not booked, when to ask
// again. booked is nil if they are not booked.
func (t *Table) Reserve(key string, rule *limit.Rule, n, now int64, terms counter.Terms) (res limit.Result, booked *counter.Booking) {
	t.with(key, rule, now, n > 0, func(c *counter.Counter) (ok bool) {
		asked := terms
		asked.Claim = terms.Claim && c.Matches(key, rule) // keys that share an overflow counter do not claim it
		res, booked, ok = c.Reserve(now, n, rule, asked)
		return ok
	})
	return res, booked
}

// Unclaim ends the claim of a reservation, see [counter.Terms].
func (t *Table) Unclaim(key string, rule *limit.Rule, now int64) {
	t.Reserve(key, rule, 0, now, counter.Terms{Claim: true})
}

// Estimate returns after how many ns, at the least, n units of key can have been admitted, if
// others that ask for ahead units in all are admitted first.
func (t *Table) Estimate(key string, rule *limit.Rule, ahead, n, now int64) (wait int64) {
	t.with(key, rule, now, false, func(c *counter.Counter) (ok bool) {
		wait, ok = c.Estimate(now, ahead, n, rule)
		return ok
	})
	return wait
}

// Cancel refunds what a reservation has booked, as far as it still counts and no booking waits
// behind it. Nothing is refunded if the key was reset or set since, in this table. Call it once for
// each booking.
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
