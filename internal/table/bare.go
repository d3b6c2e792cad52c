package table

import "github.com/hybridlimit/hybridlimit/limit"

// This file is for callers who keep counters themselves, without a table, such as a
// simulator.

// NewCounter returns a counter that no table holds. link may be nil.
func NewCounter(key string, rule *limit.Rule, link *Link, now int64) *Counter {
	c := newCounter(key, rule, 0, link, &home{leases: new(leases)}, now)
	c.entry = new(entry)
	c.entry.print.Store(1)
	return c
}

// Take asks a counter directly for n ≥ 0 units at now. ok is false if the counter is dead:
// another one has taken its place.
func (c *Counter) Take(now, n int64, rule *limit.Rule) (res limit.Result, ok bool) {
	return c.ask(now, n, rule, true)
}

// Allow is [Table.Allow] of one counter of [NewCounter]. leased reports whether its lease has
// decided. ok is false if the counter is dead.
func (c *Counter) Allow(now, n int64, rule *limit.Rule) (allowed bool, src limit.Source, leased, ok bool) {
	if n > 0 {
		if _, src, v := c.entry.take(1, rule, n, now); v != Unanswered {
			return v == Admitted, src, true, true
		}
	}
	allowed, src, ok = c.check(now, n, rule)
	return allowed, src, false, ok
}

// Forget marks c dead if it would refuse nobody and has nothing to report, as a table without
// room does, and reports whether it is dead.
func (c *Counter) Forget(now int64) bool {
	c.lock(now)
	defer c.unlock()
	c.dead = c.dead || c.worthLocked(now) <= worthPartial
	return c.dead
}
