package decision

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/limit"
)

// AppendParts appends the checks that a check consists of: one for each part of a combined rule, and
// itself under any other rule.
func AppendParts(checks []limit.Check, key string, rule *limit.Rule, n int64) []limit.Check {
	if rule.Parts() == nil {
		return append(checks, limit.Check{Key: key, Rule: rule, N: n})
	}
	for _, part := range rule.Parts() {
		checks = append(checks, limit.Check{Key: key, Rule: part, N: n})
	}
	return checks
}

// Expand replaces the checks of combined rules by those of their parts. of has the index that each
// check comes from. Without a combined rule it returns the checks themselves, and no indexes.
func Expand(checks []limit.Check) (all []limit.Check, of []int) {
	for i := range checks {
		if checks[i].Rule.Parts() != nil {
			return expand(checks)
		}
	}
	return checks, nil
}

// Original returns the answer to what Expand returned as that to the checks it was given.
func Original(v limit.AllResult, of []int) limit.AllResult {
	if v.By >= 0 && of != nil {
		v.By = of[v.By]
	}
	return v
}

// Unfit returns the answer to what Expand returned if check by is why it cannot be decided together, -1: no
// single one is, and adds to err which check that is of those that Expand was given.
func Unfit(all []limit.Check, of []int, by int, err error) (limit.AllResult, error) {
	v := Original(Refused(all, by, Invalid), of)
	if v.By >= 0 {
		err = fmt.Errorf("check %d: %w", v.By, err)
	}
	return v, err
}

func expand(checks []limit.Check) (all []limit.Check, of []int) {
	for i, q := range checks {
		all = AppendParts(all, q.Key, q.Rule, q.N)
		for len(of) < len(all) {
			of = append(of, i)
		}
	}
	return all, of
}

// Tightest returns the answer for a combined rule, made of those of its parts.
func Tightest(rule *limit.Rule, ask func(part *limit.Rule) limit.Result) limit.AllResult {
	v := None()
	for i, part := range rule.Parts() {
		Add(&v, i, part, ask(part))
	}
	return v
}

// EachPart calls do for each part of a combined rule until one returns an error.
func EachPart(rule *limit.Rule, do func(part *limit.Rule) error) error {
	for _, part := range rule.Parts() {
		if err := do(part); err != nil {
			return err
		}
	}
	return nil
}

// Least returns the smallest of the numbers that do returns for the parts of a combined rule. It
// calls do for each part.
func Least(rule *limit.Rule, do func(part *limit.Rule) int64) (least int64) {
	for i, part := range rule.Parts() {
		if n := do(part); i == 0 || n < least {
			least = n
		}
	}
	return least
}

// Longest returns the largest of the numbers that do returns for the parts of a combined rule.
func Longest(rule *limit.Rule, do func(part *limit.Rule) int64) (longest int64) {
	for _, part := range rule.Parts() {
		longest = max(longest, do(part))
	}
	return longest
}

// mostTries bounds how often TakeLeft looks again at what is left.
const mostTries = 4

// TakeLeft takes what is left under all parts of a combined rule, up to n units, with the help of
// calls that look at one unit and take some of each part. Others may take some in between: then it
// looks again.
func TakeLeft(n int64, peek func() limit.Result, take func(n int64) limit.Result) (granted int64, res limit.Result) {
	if res = peek(); n == 0 {
		res.Allowed, res.RetryAfter = true, 0
		return 0, res
	}
	for range mostTries {
		left := res.Remaining
		if left == 0 && res.Allowed {
			left = 1 // a single unit fits although it counts several times, or all is admitted
		}
		if left = min(n, left); left == 0 {
			break
		}
		if res = take(left); res.Allowed {
			return left, res
		}
		res = peek()
	}
	return 0, res
}
