package counter

import "github.com/hybridlimit/hybridlimit/limit"

// NewAlone returns a counter with an entry of its own. link may be nil.
func NewAlone(key string, rule *limit.Rule, link *Link, now int64) *Counter {
	c := New(key, rule, 0, &Group{Link: link}, now)
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
