package limit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// maxParts bounds the rules of one [Combine], each of which is decided at every check.
const maxParts = 16

// Combine describes several limits that hold together for a key, such as 10 a second and 1,000 an
// hour: a check is admitted if all rules admit it, and then consumes its units under each of them;
// else under none. A limiter decides it as its TakeAll decides one check for each rule. What it
// answers is the answer of one of the rules: of the refusals the one with the longest RetryAfter,
// else the one with the fewest units remaining.
//
// There are 1 to 16 rules with different names, which name their counters; name is only shown. They
// must not be combined themselves, and are all dry runs or none is. [Rule.Limit] is that of the
// smallest. A combined rule cannot be reserved ahead of time. Its units are not booked ahead for a
// caller that waits either: callers that only check may take them first, again and again.
func Combine(name string, rules ...*Rule) (*Rule, error) {
	c := newRule(name, arith.Combined)
	c.parts = &parts{slices.Clone(rules)}
	errs := []error{c.checkName()}
	if len(rules) < 1 || len(rules) > maxParts {
		return nil, errors.Join(append(errs, c.bad("rules", len(rules), "must be 1 to %d", maxParts))...)
	}
	names := map[string]bool{}
	for i, r := range rules {
		switch {
		case !r.Valid():
			errs = append(errs, c.bad("part", i, "must be a rule, is %v", r))
			continue
		case r.parts != nil:
			errs = append(errs, c.bad("part", i, "must not be combined itself"))
		case i > 0 && r.dry != c.dry:
			errs = append(errs, c.bad("part", i, "all parts must be dry runs, or none"))
		case names[r.Name()]:
			errs = append(errs, c.bad("part", i, "another one is called %q, so both would share a counter", r.Name()))
		}
		names[r.Name()] = true
		c.dry, c.exact = r.dry, c.exact || r.exact
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	smallest := arith.Of(rules[0])
	for _, r := range rules[1:] {
		if is := arith.Of(r); is.Limit < smallest.Limit {
			smallest = is
		}
	}
	arith.Of(c).Limit, arith.Of(c).Period = smallest.Limit, smallest.Period
	return c.sealed(), nil
}

// Parts returns the rules of a combined rule, nil for any other. Do not change them.
func (r *Rule) Parts() []*Rule {
	if r == nil || r.parts == nil {
		return nil
	}
	return r.parts.rules
}

// parts holds the rules of a combined rule. It keeps rules comparable.
type parts struct{ rules []*Rule }

// dryRun returns the parts as dry runs.
func (p *parts) dryRun() *parts {
	if p == nil {
		return nil
	}
	dry := new(parts)
	for _, r := range p.rules {
		dry.rules = append(dry.rules, r.DryRun())
	}
	return dry
}

// combined describes a combined rule for people and logs.
func (r *Rule) combined() string {
	var texts []string
	for _, part := range r.parts.rules {
		texts = append(texts, part.String())
	}
	text := fmt.Sprintf("combined %q: %s", r.Name(), strings.Join(texts, "; "))
	if r.exact && !slices.ContainsFunc(r.parts.rules, (*Rule).IsExact) {
		text += " (exact)"
	}
	return text
}
