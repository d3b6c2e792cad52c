// Package decision builds the answers that the limiters of this module have in common.
package decision

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Askable returns why a question cannot be asked.
func Askable(rule *limit.Rule, n int64) error {
	switch {
	case !rule.Valid():
		return limit.ErrNilRule
	case n < 0:
		return fmt.Errorf("%w: %d", limit.ErrInvalidN, n)
	}
	return nil
}

// Invalid is the answer to a question that cannot be asked (a negative n, a rule
// that is nil or not supported): denied, for ever, with [limit.SourceInvalid].
func Invalid(r *limit.Rule) limit.Result {
	res := limit.Result{RetryAfter: limit.Never, Source: limit.SourceInvalid}
	if r.Valid() {
		res.Limit = r.Limit()
	}
	return res
}

// Failed is the answer beside an error: denied.
func Failed(r *limit.Rule) limit.Result {
	res := limit.Result{Source: limit.SourceRemote}
	if r.Valid() {
		res.Limit = r.Limit()
	}
	return res
}

// Refused is the answer to several checks of which one, by, is the cause that none is decided; -1: none
// is the cause. answer gives the answer for its rule.
func Refused(checks []limit.Check, by int, answer func(*limit.Rule) limit.Result) limit.AllResult {
	v := limit.AllResult{By: by}
	if by >= 0 {
		v.Rule = checks[by].Rule
	}
	v.Result = answer(v.Rule)
	return v
}

// None is the answer to no checks: allowed. The answer to several is built from it
// with [Add].
func None() limit.AllResult {
	return limit.AllResult{Result: limit.Result{Allowed: true}, By: -1}
}

// Add takes the answer to check i into account.
func Add(all *limit.AllResult, i int, rule *limit.Rule, res limit.Result) {
	decides := all.By < 0
	switch {
	case decides:
	case res.Allowed != all.Allowed:
		decides = all.Allowed
	case !res.Allowed:
		decides = res.RetryAfter > all.RetryAfter
	case res.WouldRefuse != all.WouldRefuse:
		decides = res.WouldRefuse
	default:
		decides = res.Remaining < all.Remaining
	}
	if decides {
		all.Result, all.By, all.Rule = res, i, rule
	}
}

// Mistaken returns the index of the first check that cannot be asked together
// with those before it, because it asks for the same counter under a rule that
// counts otherwise: each would re-express what the other has counted. Several
// limits of one key need names of their own. -1 if there is none.
func Mistaken(checks []limit.Check) int {
	for i := range checks {
		for j := range i {
			a, b := arith.Of(checks[i].Rule), arith.Of(checks[j].Rule)
			if checks[i].Key == checks[j].Key && a.Hash == b.Hash && a.Name == b.Name && !a.SameShape(b) {
				return i
			}
		}
	}
	return -1
}
