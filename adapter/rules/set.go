package rules

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hybridlimit/hybridlimit/adapter/internal/ranges"
	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Set is the rules of one file, ready to be looked up. It does not change: a reload makes
// another one. It is safe for concurrent use. A nil or zero Set has no rules.
//
// A look-up allocates nothing and takes no lock. It answers with the same pointer for as
// long as the numbers are the same, across reloads too.
type Set struct {
	rules map[string]*named
	plans map[string]*plan
	keys  map[string]*override
	// addresses has the overrides of keys that are addresses. They are for rules whose keys are.
	addresses map[netip.Prefix]*override
	prefixes  map[string]*override
	lengths   []int // of the prefixes, longest first, each once
	routes    map[string]*override
	ranges    *ranges.Table // nil: there are none
	ranged    []*override   // of each range
	domains   map[string]*level

	names   []string // of the rules, sorted
	built   map[build]*limit.Rule
	source  source
	lacking *undecided.Log // of look-ups that found nothing; nil: no file is followed
}

// named is a rule of the file.
type named struct {
	rule    *limit.Rule
	blocked *limit.Rule // the same with a limit of 0
	numbers numbers
	// addressed tells that keys of the rule are addresses. Of other keys the text may be one by chance,
	// or because a user has called himself so.
	addressed bool
}

// plan has rules by name, where they differ from those of the file.
type plan struct {
	name    string
	rules   map[string]*limit.Rule
	numbers map[string]numbers
}

// override is what a file says about a key, about keys that begin alike, addresses or a route.
type override struct {
	plan  *plan // nil: none
	rules map[string]*limit.Rule
	// For all rules that are not among rules: unlimited, blocked, or neither.
	unlimited, blocked bool
}

// build is what a rule was made of.
type build struct {
	name string
	numbers
}

// Rule returns the rule of that name as the file's section rules has it, whoever asks; nil
// if there is none, which limiters refuse. It is [limit.Unlimited] if the file says so.
func (s *Set) Rule(name string) *limit.Rule {
	if s == nil {
		return nil
	}
	if r := s.rules[name]; r != nil {
		return r.rule
	}
	return nil
}

// lacks logs that the file has no such rule or plan: limiters refuse all of its checks.
func (s *Set) lacks(what, name string) {
	if s.lacking != nil {
		s.lacking.Note(context.Background(), false, fmt.Errorf("there is no %s %.80q", what, name))
	}
}

// prefixOf returns the length of the longest prefix of a key that has an override; 0 if none has.
func (s *Set) prefixOf(key string) int {
	for _, n := range s.lengths {
		if n <= len(key) && s.prefixes[key[:n]] != nil {
			return n
		}
	}
	return 0
}

// choose returns what o says about the rule of a name, nil if nothing.
func (o *override) choose(name string, r *named) *limit.Rule {
	switch rule := o.rules[name]; {
	case rule != nil:
		return rule
	case o.blocked:
		return r.blocked
	case o.unlimited:
		return limit.Unlimited()
	case o.plan == nil:
		return nil
	}
	if rule := o.plan.rules[name]; rule != nil {
		return rule
	}
	return r.rule // a plan that does not say otherwise has the rule as it is
}

// Names returns the names of the rules, in order.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.names)
}

// HasPlan reports whether there is a plan of that name.
func (s *Set) HasPlan(name string) bool { return s != nil && s.plans[name] != nil }

// Size is how much is in a [Set].
type Size struct {
	Rules, Plans, Overrides int // each range of a cidr is an override
	Domains, Descriptors    int // of Envoy; the descriptors are those with a rate limit
}

// Size returns how much is in s.
func (s *Set) Size() Size {
	if s == nil {
		return Size{}
	}
	size := Size{Rules: len(s.rules), Plans: len(s.plans), Overrides: len(s.keys) + len(s.prefixes) + len(s.routes) + s.ranges.Len(), Domains: len(s.domains)}
	for _, l := range s.domains {
		size.Descriptors += l.count()
	}
	return size
}
