package table

import (
	"runtime"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// FewChecks is how many checks can be asked together without an allocation.
const FewChecks = 4

// allTries bounds how often counters are looked up again because one was
// forgotten before all were locked. To reach it takes an eviction each time.
const allTries = 1000

// TakeAll consumes what all of the checks ask for if each of them admits it,
// else nothing, and puts the answer of each into out, which is as long as
// checks. Checks of one counter must be admitted together. Those under a dry run
// (see [limit.Rule.DryRun]) never stand in the way.
func (t *Table) TakeAll(checks []limit.Check, now int64, out []limit.Result) (v limit.AllResult) {
	var few [FewChecks]counter.Asked
	v = decision.None()
	for try := range allTries {
		list := few[:0]
		for i := range checks {
			list = append(list, counter.Asked{Counter: t.lookup(&checks[i], now, try > 0), Check: i})
		}
		if counter.TakeTogether(list, checks, now, out, &t.crowd) {
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

// lookup returns the counter of a check. It may be dead by the time it is locked: then call
// lookup again, with again set.
func (t *Table) lookup(q *limit.Check, now int64, again bool) *counter.Counter {
	h, print := t.hashOf(q.Key, q.Rule)
	t.names.See(q.Rule)
	if !again {
		if c := counterOf(t.index.search(h, print), q.Key, q.Rule); c != nil {
			return c
		}
	}
	f := t.find(h, print, q.Key, q.Rule, now, true)
	f.leave()
	return f.c
}
