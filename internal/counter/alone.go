package counter

import "github.com/hybridlimit/hybridlimit/limit"

// This file is for callers who keep counters without an index, such as a simulator.

// NewAlone returns a counter with an entry of its own. link may be nil.
func NewAlone(key string, rule *limit.Rule, link *Link, now int64) *Counter {
	c := New(key, rule, 0, link, &Group{Leases: new(Leases)}, now)
	c.Enter(new(Entry), alonePrint)
	return c
}

// alonePrint is the fingerprint of the entries of [NewAlone].
const alonePrint = 1

// Take asks a counter directly for n ≥ 0 units at now. ok is false if the counter is dead:
// another one has taken its place.
func (c *Counter) Take(now, n int64, rule *limit.Rule) (res limit.Result, ok bool) {
	return c.Ask(now, n, rule, true)
}

// Allow asks the entry of a counter of [NewAlone], and the counter if that does not answer.
// leased reports whether the lease has decided. ok is false if the counter is dead.
func (c *Counter) Allow(now, n int64, rule *limit.Rule) (allowed bool, src limit.Source, leased, ok bool) {
	if n > 0 {
		if _, src, v := c.entry.Take(alonePrint, rule, n, now); v != Unanswered {
			return v == Admitted, src, true, true
		}
	}
	allowed, src, ok = c.Check(now, n, rule)
	return allowed, src, false, ok
}

// Follow takes over the mode of a link that c does not report to. nil changes nothing.
func (c *Counter) Follow(link *Link, now int64) {
	if link == nil {
		return
	}
	c.lock(now)
	defer c.unlock()
	c.state() // unfolds it with the multiplier that it was folded with
	c.setMode(link.unsorted.mode.Load())
}

// RefuseAll makes c refuse every check. Call it before the first.
func (c *Counter) RefuseAll() { c.setMode(packMode(MultiplierClosed, false)) }
