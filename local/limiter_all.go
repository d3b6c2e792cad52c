package local

import (
	"cmp"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeAll asks several checks together, of different keys or rules, or both:
// each consumes its units if all of them admit, else none does. The result is
// the answer of the check that decided, and says which that was. Several checks
// of one key under one rule must be admitted together; under rules of one name
// that differ in more than the limit they are refused: each would re-express what
// the other has counted. One that is a dry run does not stand in the way of the
// others. No checks are allowed; one that cannot be asked refuses. Up to 4 checks
// need no allocation.
func (l *Limiter) TakeAll(checks ...limit.Check) limit.AllResult {
	if all, of := decision.Expand(checks); of != nil {
		return decision.Original(l.TakeAll(all...), of)
	}
	for i := range checks {
		if !l.askable(checks[i].Rule, cmp.Or(checks[i].N, 1)) {
			return decision.Refused(checks, i, decision.Invalid)
		}
	}
	if i := decision.Mistaken(checks); i >= 0 {
		l.invalid.Add(1)
		return decision.Refused(checks, i, decision.Invalid)
	}
	if len(checks) == 0 {
		return decision.None()
	}
	var few [table.FewChecks]limit.Result
	out := few[:min(len(checks), table.FewChecks)]
	if len(checks) > table.FewChecks {
		out = make([]limit.Result, len(checks))
	}
	return l.table.TakeAll(checks, int64(l.clock.Now()), out)
}
