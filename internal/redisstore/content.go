package redisstore

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// content is what a counter holds, as a script has answered: the fields of one algorithm.
type content struct {
	rule *limit.Rule
	// Of a funnel.
	level arith.Span
	// Of a window: units, and when the last came, by age of the bucket.
	counts, last []int64
	past         time.Duration // of the current bucket
	// Of a log.
	count       int64
	wait, reset time.Duration
}

// content returns the next items, what a counter holds.
func (r *reader) content(rule *limit.Rule) *content {
	c := &content{rule: rule}
	switch rule.Algorithm() {
	case limit.AlgorithmFunnel:
		c.level = r.span(rule)
	case limit.AlgorithmSlidingLog:
		c.count, c.wait, c.reset = r.number(maxExact), r.now(), r.now()
	default:
		c.counts, c.last, c.past = r.window(rule)
	}
	return c
}

// tell describes the answer to a question for n units.
func (c *content) tell(allowed bool, n int64) limit.Result {
	var res limit.Result
	is := arithOf(c.rule)
	switch c.rule.Algorithm() {
	case limit.AlgorithmFunnel:
		res = decision.LeakyBucket(is, allowed, n, 1, c.level)
	case limit.AlgorithmSlidingLog:
		res = logResult(c.rule, allowed, n, c.count, c.wait, c.reset)
	default:
		res = decision.Window(is, allowed, n, 1, c.counts, c.last, c.past)
	}
	res.Source = limit.SourceRemote
	return res
}

// used returns how many units count, those above the limit included.
func (c *content) used() (n int64) {
	is := arithOf(c.rule)
	switch c.rule.Algorithm() {
	case limit.AlgorithmFunnel:
		if n = is.Whole(c.level); is.Cost(n).Less(c.level) {
			n++
		}
		return n
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

// logResult describes the answer to a question for n units of a sliding log.
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
