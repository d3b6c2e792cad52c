package table

import (
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeAtMost admits up to n units of key at now, as many as are left, and returns how many.
func (t *Table) TakeAtMost(key string, rule *limit.Rule, n, now int64) (granted int64, res limit.Result) {
	t.with(key, rule, now, toTake(n), func(c *counter.Counter) (ok bool) {
		granted, res, ok = c.TakeAtMost(now, n, rule)
		return ok
	})
	return granted, res
}

// Refund gives back up to n units of key, no more than the table has counted, and returns how many.
func (t *Table) Refund(key string, rule *limit.Rule, n, now int64) (back int64) {
	t.with(key, rule, now, ifRemembered, func(c *counter.Counter) (ok bool) {
		back, _, ok = c.Refund(now, n, rule)
		return ok
	})
	return back
}

// Charge counts up to n units of key, whether they fit or not, and returns how many, see
// [counter.Counter.Charge].
func (t *Table) Charge(key string, rule *limit.Rule, n, now int64) (charged int64, src limit.Source) {
	t.with(key, rule, now, toTake(n), func(c *counter.Counter) (ok bool) {
		charged, src, ok = c.Charge(now, n, rule, t.maxDebt)
		return ok
	})
	return charged, src
}

// Set replaces what is counted of key by used units. It is for tables without a link.
func (t *Table) Set(key string, rule *limit.Rule, used, now int64) {
	create := ifRemembered
	if used > 0 {
		create = always
	}
	t.with(key, rule, now, create, func(c *counter.Counter) bool { return c.Set(now, used, rule) })
}

// Renew passes on to the counter of a key what Redis has reset or set. If there is no counter, one
// is created, because other nodes may hold older views.
func (t *Table) Renew(key string, rule *limit.Rule, now int64, a report.Answer) {
	t.with(key, rule, now, always, func(c *counter.Counter) bool { return c.Renew(now, rule, a) })
}

// Refuses reports whether what is known of key refuses n units, see [counter.Counter.Refuses]. It
// creates the counter if there is none.
func (t *Table) Refuses(key string, rule *limit.Rule, n, now int64) (res limit.Result, refused bool) {
	t.with(key, rule, now, always, func(c *counter.Counter) (ok bool) {
		res, refused, ok = c.Refuses(now, n, rule)
		return ok
	})
	return res, refused
}

// Learn passes on to the counter of a key what Redis has answered to a call that was no report, see
// [counter.Counter.Learn]. It returns the counter, nil if there is none, and what is to be done. If the call
// has taken units, there is one: the key may have left since it began, and they may be handed back.
func (t *Table) Learn(key string, now int64, a report.Answer) (of *counter.Counter, out counter.Outcome) {
	if a.Own <= 0 && t.Find(key, a.Rule) == nil {
		return nil, out
	}
	t.with(key, a.Rule, now, always, func(c *counter.Counter) (ok bool) {
		of = c
		out, ok = c.Learn(now, a)
		return ok
	})
	return of, out
}

// Returned returns how often Redis has acknowledged refunds of key, see [counter.Counter.Returned].
func (t *Table) Returned(key string, rule *limit.Rule) uint32 {
	if c := t.Find(key, rule); c != nil {
		return c.Returned()
	}
	return 0
}

// Touch makes the counter of key ask Redis as a check would. It creates the counter if there is
// none, and consumes nothing.
func (t *Table) Touch(key string, rule *limit.Rule, now int64) {
	t.with(key, rule, now, always, func(c *counter.Counter) bool { return c.Touch(now, rule) })
}

// Reserve books n units of key if the terms allow it, see the Limiter of package local, and returns
// the answer. RetryAfter is when the units may be used or, if they are not booked, when to ask
// again. booked is nil if they are not booked.
func (t *Table) Reserve(key string, rule *limit.Rule, n, now int64, terms counter.Terms) (res limit.Result, booked *counter.Booking) {
	t.with(key, rule, now, toTake(n), func(c *counter.Counter) (ok bool) {
		res, booked, ok = c.Reserve(now, n, rule, terms)
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
	t.with(key, rule, now, never, func(c *counter.Counter) (ok bool) {
		wait, ok = c.Estimate(now, ahead, n, rule)
		return ok
	})
	return wait
}

// Cancel refunds what a reservation has booked, as far as it still counts and no booking waits
// behind it. Nothing is refunded if the key was reset or set since, in this table. Call it once for
// each booking.
func (t *Table) Cancel(key string, rule *limit.Rule, now int64, b *counter.Booking) (back int64) {
	t.with(key, rule, now, ifRemembered, func(c *counter.Counter) (ok bool) {
		back, _, ok = c.Cancel(now, rule, b)
		return ok
	})
	return back
}
