package sim

import (
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// alonePrint is the fingerprint of the entries of [newAlone].
const alonePrint = 1

// newAlone returns a counter without an index, with an entry of its own.
func newAlone(key string, rule *limit.Rule, link *counter.Link, now int64) *counter.Counter {
	c := counter.New(key, rule, 0, &counter.Group{Link: link}, now)
	c.Enter(new(counter.Entry), alonePrint)
	return c
}

// allowAlone asks the entry of a counter of [newAlone] for n units, at least 1, and the counter
// if that does not answer. ok is false if the counter is dead.
func allowAlone(c *counter.Counter, now, n int64, rule *limit.Rule) (allowed bool, src limit.Source, ok bool) {
	if _, src, v := c.Entry().Take(alonePrint, rule, n, now); v != counter.Unanswered {
		return v == counter.Admitted, src, true
	}
	return c.Check(now, n, rule)
}
