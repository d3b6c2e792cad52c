package table

import (
	"runtime"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// FewChecks is how many checks TakeAll can decide together without an allocation.
const FewChecks = 4

// allTries bounds how often counters are looked up again because one was dropped before all were
// locked. Each further try needs an eviction at that moment.
const allTries = 1000

// TakeAll is [counter.TakeTogether] for keys. out is as long as checks.
func (t *Table) TakeAll(checks []limit.Check, now int64, out []limit.Result) (v limit.AllResult) {
	var few [FewChecks]counter.Asked
	v = decision.None()
	for try := range allTries {
		list := few[:0]
		for i := range checks {
			list = append(list, counter.Asked{Counter: t.lookup(&checks[i], now, try > 0), Check: i})
		}
		if counter.TakeTogether(list, checks, now, out) {
			for i := range checks {
				decision.Add(&v, i, checks[i].Rule, out[i])
			}
			return v
		}
		runtime.Gosched()
	}
	// The counters could not be locked together: refuse, which is the safe side.
	for i := range checks {
		out[i] = limit.Result{Limit: checks[i].Rule.Limit(), RetryAfter: counter.ClosedRetry}
		decision.Add(&v, i, checks[i].Rule, out[i])
	}
	return v
}

// lookup returns the counter of a check. The counter may be dropped before it is locked: then call
// lookup again, with again set.
func (t *Table) lookup(q *limit.Check, now int64, again bool) (c *counter.Counter) {
	t.with(q.Key, q.Rule, now, true, func(found *counter.Counter) (ok bool) {
		c = found
		return !again
	})
	return c
}
