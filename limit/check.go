package limit

// Check is one question of several that are asked together: may N units of a
// key be taken under a rule. An N of 0, as of a Check that does not say, means 1:
// a limit that is forgotten must not let everything pass. So no Check only looks;
// Peek of a limiter does, at one key. Give several limits of one caller different
// names: by its name a rule counts.
type Check struct {
	Key  string
	Rule *Rule
	N    int64
}

// Units returns how many units q asks for: N, or 1 if that is 0.
func (q *Check) Units() int64 {
	if q.N == 0 {
		return 1
	}
	return q.N
}

// AllResult is the answer to several checks that were asked together, by TakeAll of a
// limiter.
type AllResult struct {
	// Result is that of one check, the one By names. Allowed holds for all of
	// them: either every check has consumed its units, or none has.
	Result
	// By is the index of the check that decided: of those that refused the one
	// with the longest RetryAfter, so that waiting for it is enough; else one
	// that would have, had its rule not been a dry run; else the one with the
	// fewest units remaining. -1 if there were no checks.
	By int
	// Rule is the rule of that check, nil if it has none.
	Rule *Rule
}

// NewAllResult returns the answer to no checks yet: allowed. Limiters build
// theirs from it with [AllResult.Add].
func NewAllResult() AllResult { return AllResult{Result: Result{Allowed: true}, By: -1} }

// Add takes the answer to check i into account.
func (v *AllResult) Add(i int, rule *Rule, res Result) {
	decides := v.By < 0
	switch {
	case decides:
	case res.Allowed != v.Allowed:
		decides = v.Allowed
	case !res.Allowed:
		decides = res.RetryAfter > v.RetryAfter
	case res.WouldRefuse != v.WouldRefuse:
		decides = res.WouldRefuse
	default:
		decides = res.Remaining < v.Remaining
	}
	if decides {
		v.Result, v.By, v.Rule = res, i, rule
	}
}

// Mistaken returns the index of the first check that cannot be asked together
// with those before it, because it asks for the same counter under a rule that
// counts otherwise: each would re-express what the other has counted. Several
// limits of one key need names of their own. -1 if there is none.
func Mistaken(checks []Check) int {
	for i := range checks {
		for j := range i {
			a, b := &checks[i], &checks[j]
			if a.Key == b.Key && a.Rule.hash == b.Rule.hash && a.Rule.name == b.Rule.name && !a.Rule.SameShape(b.Rule) {
				return i
			}
		}
	}
	return -1
}
