package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// fewChecks is how many checks TakeAll decides without an allocation.
const fewChecks = 4

// TakeAll decides several checks together, of different keys or rules, or both. If all of
// them admit, each consumes its units; else none does. The result is the answer of the
// check that decided, and says which that was.
//
// Several checks of one key under one rule must be admitted together. Checks of one key
// under rules of one name that differ in more than the limit are refused: each rule would
// re-express what the other has counted. A check with a dry run does not stop the others.
// No checks are allowed. One invalid check refuses all. Up to 4 checks need no allocation.
//
// It is one step on this node. The keys are reported to Redis one by one, as with any
// check. Other nodes never see what was refused.
func (l *Limiter) TakeAll(checks ...limit.Check) limit.AllResult {
	for i := range checks {
		if q := &checks[i]; !l.usable(q.Rule, q.Units()) {
			v := decision.None()
			decision.Add(&v, i, q.Rule, l.invalid(q.Key, q.Rule, q.N))
			return v
		}
	}
	if i := decision.Mistaken(checks); i >= 0 {
		v := decision.None()
		decision.Add(&v, i, checks[i].Rule, l.invalid(checks[i].Key, checks[i].Rule, checks[i].N))
		return v
	}
	if len(checks) == 0 {
		return decision.None()
	}
	var few [fewChecks]limit.Result
	out := few[:min(len(checks), fewChecks)]
	if len(checks) > fewChecks {
		out = make([]limit.Result, len(checks))
	}
	v := l.table.TakeAll(checks, l.now(), out)
	l.countAll(checks, out, &v)
	return v
}

// countAll counts the decisions of an admitted TakeAll, or its one refusal.
func (l *Limiter) countAll(checks []limit.Check, out []limit.Result, v *limit.AllResult) {
	if !v.Allowed {
		l.tally.Of(checks[v.By].Rule).Count(checks[v.By].Units(), false, v.Source)
		return
	}
	for i := range checks {
		if q := &checks[i]; out[i].WouldRefuse {
			l.tally.Of(q.Rule).Pass()
		} else {
			l.tally.Of(q.Rule).Count(q.Units(), true, out[i].Source)
		}
	}
}
