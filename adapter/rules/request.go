package rules

import (
	"fmt"
	"net/netip"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Request is what a service knows of a request whose rule is looked up. What is left zero is not
// known, and nothing matches it.
type Request struct {
	Key  string // that the request is counted under
	Plan string // of the customer
	// Addr is the client's address, which overrides with a cidr are about. Do not take it from what
	// clients write: httplimit.ClientAddr returns one that trusted proxies name.
	Addr netip.Addr
	// Route is that of the request as the router has it, such as the Pattern of an http.Request or
	// the full method of gRPC: not the path, which a client can write in several ways.
	Route string
}

// For returns the rule of that name for a key: of an override of the key, else of the longest
// prefix that the key begins with, else [Set.Rule]. It returns nil if there is no such rule,
// which limiters refuse, and [limit.Unlimited] for a key that nothing limits: then ask no
// limiter. A blocked key has a rule with a limit of 0. If the file says of the rule that its keys
// are addresses, overrides of ranges count as well, see [Set.ForRequest].
//
// The name of the rule is that of the file, or begins with it and an @: a key whose rate,
// period or buckets differ from those of the rule has a name, and so a counter, of its own.
func (s *Set) For(name, key string) *limit.Rule { return s.ForRequest(name, Request{Key: key}) }

// ForPlan is [Set.For] for a key of whose plan the caller knows: an override that says
// something about this rule wins, then the plan, then [Set.Rule]. It returns nil if there is
// no such plan.
func (s *Set) ForPlan(name, planName, key string) *limit.Rule {
	if planName == "" && s != nil {
		s.lacks("plan", planName)
		return nil
	}
	return s.ForRequest(name, Request{Key: key, Plan: planName})
}

// ForRequest is [Set.For] for a request of which more is known than the key. The first override that
// says something about the rule wins: that of the route, of the key, of the longest range with the
// address, of the longest prefix of the key. But one of them that blocks wins over all. Then comes
// the plan, if there is one, then [Set.Rule]. It returns nil if there is no such rule or plan.
func (s *Set) ForRequest(name string, q Request) *limit.Rule {
	if s == nil {
		return nil
	}
	r, p := s.rules[name], s.plans[q.Plan]
	switch {
	case r == nil:
		s.lacks("rule", name)
		return nil
	case p == nil && q.Plan != "":
		s.lacks("plan", q.Plan)
		return nil
	}
	if chosen, _ := s.said(name, r, &q); chosen != nil {
		return chosen
	}
	if p != nil && p.rules[name] != nil {
		return p.rules[name]
	}
	return r.rule
}

// matched is what an override and a request have in common.
type matched uint8

const (
	byRoute matched = iota
	byKey
	byRange
	byPrefix
)

// match is an override that is about a request.
type match struct {
	*override // nil: there is none
	by        matched
	n         int // the number of the range, or the length of the prefix
}

// matches returns the overrides that are about a request, in the order in which they count.
func (s *Set) matches(r *named, q *Request) (list [4]match) {
	if q.Route != "" && len(s.routes) > 0 {
		list[0] = match{s.routes[q.Route], byRoute, 0}
	}
	keyed, ranged := &list[1], &list[2]
	at := netip.Prefix{}
	if r.addressed {
		at = addressOf(q.Key)
	}
	if o := s.keyed(q.Key, at); o != nil {
		*keyed = match{o, byKey, 0}
	} else if n := s.prefixOf(q.Key); n > 0 {
		keyed, ranged = ranged, keyed
		*keyed = match{s.prefixes[q.Key[:n]], byPrefix, n}
	}
	inside, i := s.rangesOf(at, q)
	if inside >= 0 { // it comes first
		if i >= 0 {
			list[3] = match{s.ranged[i], byRange, i}
		}
		i = inside
	}
	if i >= 0 {
		*ranged = match{s.ranged[i], byRange, i}
	}
	return list
}

// keyed returns the override of a key, which is an address if at is valid; nil if it has none.
func (s *Set) keyed(key string, at netip.Prefix) *override {
	if o := s.keys[key]; o != nil || !at.IsValid() {
		return o
	}
	if o := s.addresses[at]; o != nil || at.Addr().Is4() {
		return o
	}
	return s.addresses[counted(at)]
}

// rangesOf returns the range that a request comes from, -1 for none; inside is that of the IPv4 address
// which is inside its own, if it has one. Its key is an address if at is valid.
func (s *Set) rangesOf(at netip.Prefix, q *Request) (inside, i int) {
	switch {
	case s.ranges == nil:
		return -1, -1
	case q.Addr.IsValid():
		return s.ranges.FindBoth(q.Addr)
	case at.IsValid() && at.IsSingleIP():
		return s.ranges.FindBoth(at.Addr())
	}
	return -1, s.ranges.FindPrefix(at)
}

// said returns what overrides say of a rule for a request, and which of them; nil if none says
// anything.
func (s *Set) said(name string, r *named, q *Request) (rule *limit.Rule, by match) {
	for _, m := range s.matches(r, q) {
		if m.override == nil {
			continue
		}
		switch chosen := m.choose(name, r); {
		case chosen == nil:
		case chosen != limit.Unlimited() && chosen.Limit() == 0 && !chosen.IsDryRun():
			return chosen, m // who is blocked must not get around it by a route, or another address
		case rule == nil:
			rule, by = chosen, m
		}
	}
	return rule, by
}

// about says in words what the override of a match is about.
func (s *Set) about(m match, key string) string {
	switch m.by {
	case byRoute:
		return "override of the route"
	case byRange:
		return "override of addresses in " + s.ranges.Prefix(m.n).String()
	case byPrefix:
		return fmt.Sprintf("override of keys that begin with %q", key[:m.n])
	}
	return "override of the key"
}
