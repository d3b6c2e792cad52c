package redisstore

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Content is what a counter holds, from the reply of a script: the fields of its algorithm are set.
type Content struct {
	rule *limit.Rule
	// Level is the time in which a leaky bucket will be empty.
	Level arith.Span
	// Of a window, by age of the bucket: its units, and when the last of them came.
	counts, last []int64
	past         time.Duration // how much of the current bucket has passed
	// Of a log.
	count       int64
	wait, reset time.Duration
}

// content returns the next items, the content of a counter.
func (r *reader) content(rule *limit.Rule) Content {
	c := Content{rule: rule}
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		c.Level = r.span(rule)
	case limit.AlgorithmSlidingLog:
		c.count, c.wait, c.reset = r.number(maxExact), r.now(), r.now()
	default:
		c.counts, c.last, c.past = r.window(rule)
	}
	return c
}

// Result returns the result of a request for n units.
func (c *Content) Result(allowed bool, n int64) limit.Result {
	var res limit.Result
	is := arithOf(c.rule)
	switch c.rule.Algorithm() {
	case limit.AlgorithmFunnel:
		res = decision.LeakyBucket(is, allowed, n, 1, c.Level)
	case limit.AlgorithmSlidingLog:
		res = logResult(c.rule, allowed, n, c.count, c.wait, c.reset)
	default:
		res = decision.Window(is, allowed, n, 1, c.counts, c.last, c.past)
	}
	res.Source = limit.SourceRemote
	return res
}

// Used returns how many units count, those above the limit included.
func (c *Content) Used() (n int64) {
	is := arithOf(c.rule)
	switch c.rule.Algorithm() {
	case limit.AlgorithmFunnel:
		return unitsIn(is, c.Level)
	case limit.AlgorithmSlidingLog:
		return c.count
	}
	for age, units := range c.counts {
		if is.Kept > 0 && age == is.Kept {
			units -= is.Gone(units, c.last[age], int64(c.past))
		}
		n = min(n+units, limit.MaxUnits) // each of them is at most that
	}
	return n
}

// unitsIn returns how many units a level is, rounded up.
func unitsIn(r *arith.Rule, level arith.Span) int64 {
	n := r.Whole(level)
	if r.Cost(n).Less(level) {
		n++
	}
	return n
}

// logResult returns the result of a request for n units of a sliding log.
func logResult(rule *limit.Rule, allowed bool, n, count int64, wait, reset time.Duration) limit.Result {
	res := limit.Result{Allowed: allowed, Limit: rule.Limit(), Remaining: max(rule.Limit()-count, 0), ResetAfter: reset}
	switch {
	case allowed:
	case n > rule.Limit():
		res.RetryAfter = limit.Never
	default:
		res.RetryAfter = max(wait, time.Microsecond)
	}
	return res
}
