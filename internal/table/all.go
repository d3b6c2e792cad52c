package table

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// FewChecks is how many checks TakeAll can decide together without an allocation.
const FewChecks = 4

// TakeAll is [counter.TakeTogether] for keys. out is as long as checks.
func (t *Table) TakeAll(checks []limit.Check, now int64, out []limit.Result) (v limit.AllResult) {
	var few [FewChecks]counter.Asked
	list := few[:0]
	for i := range checks {
		q := &checks[i]
		t.with(q.Key, q.Rule, now, always, func(c *counter.Counter) bool {
			list = append(list, counter.Asked{Counter: c, Check: i})
			return true
		})
	}
	if !counter.TakeTogether(list, checks, now, out) {
		t.takeAllLocked(list[:0], checks, now, out)
	}
	v = decision.None()
	for i := range checks {
		decision.Add(&v, i, checks[i].Rule, out[i])
	}
	return v
}

// takeAllLocked decides when a counter was dropped before all were locked. It locks the shards of all
// keys first, in one order, so none of their counters is dropped meanwhile. It makes no room for one of
// the keys either, because another of them might have to leave.
func (t *Table) takeAllLocked(list []counter.Asked, checks []limit.Check, now int64, out []limit.Result) {
	queries, shards := make([]query, len(checks)), make([]int, len(checks))
	for i := range checks {
		queries[i] = t.query(checks[i].Key, checks[i].Rule, now)
		shards[i] = int(queries[i].h >> t.index.shift)
	}
	slices.Sort(shards)
	for _, i := range slices.Compact(shards) {
		t.index.shards[i].mu.Lock()
		defer t.index.shards[i].mu.Unlock()
	}
	for i, q := range queries {
		sh := t.index.shard(q.h)
		c, spare := t.findLocked(sh, q, inAnyCase)
		list = append(list, counter.Asked{Counter: c, Check: i})
		if spare {
			defer t.forgetLocked(sh, c, counter.Kept, now)
		}
	}
	counter.TakeTogether(list, checks, now, out)
}
