package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hybridlimit/hybridlimit/adapter/internal/ranges"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Exception is requests that a limit does not count, or by another rule: all that come from one of
// the Ranges, are for one of the Routes or have one of the Keys.
//
// Of several exceptions of a limit that of the route counts, else that of the key, else that of the
// longest range. But one whose rule admits nothing, with a limit of 0, wins over all.
type Exception struct {
	// Ranges has addresses of clients, of IPv4 and IPv6: thousands of them are looked up in less
	// than a microsecond. They need Client of [Options].
	Ranges []netip.Prefix
	// Routes has patterns as the router writes them into the Pattern of a request, such as
	// "GET /health": the text must be the same. It is known behind the router only, see [ByRoute].
	// Paths are not compared: a client can write one in several ways.
	Routes []string
	// Keys has keys of this limit, as its Key returns them.
	Keys []string
	// Rule is theirs. It is required: [limit.Unlimited] is for those that are not limited. Give a
	// rule with another limit and the same period the name of the limit's own to count with it, and
	// any other rule a name of its own.
	Rule *limit.Rule
}

// ClientAddr returns a function that says from which address a request comes, as [ByAddress] does,
// for what depends on the whole address: Client of [Options], or package rules. It returns the
// zero Addr, which is in no range, if the address is not known: the peer has none, or a trusted
// proxy does not name the client, as with Strict, or names another trusted proxy alone. IPv6Bits
// does not matter.
func ClientAddr(o AddressOptions) (func(r *http.Request) netip.Addr, error) {
	o, err := o.plain()
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) netip.Addr {
		addr, err := o.client(r)
		if err != nil || o.Header != NotForwarded && o.trusts(addr) { // a proxy that names nobody behind it
			return netip.Addr{}
		}
		return addr
	}, nil
}

// exceptions are those of one limit, to be looked up.
type exceptions struct {
	client func(r *http.Request) netip.Addr
	ranges *ranges.Table
	ranged []*limit.Rule // of each range
	routes map[string]*limit.Rule
	keys   map[string]*limit.Rule
}

// exceptionsOf returns nil if there are none, and everything that is wrong with them.
func (c *config) exceptionsOf(l *Limit) (*exceptions, error) {
	if len(l.Except) == 0 {
		return nil, nil
	}
	e := &exceptions{client: c.o.Client, routes: map[string]*limit.Rule{}, keys: map[string]*limit.Rule{}}
	var errs []error
	var prefixes []netip.Prefix
	for i, x := range l.Except {
		for _, err := range []error{c.usable(l, x.Rule), e.add(&x)} {
			if err != nil {
				errs = append(errs, fmt.Errorf("exception %d: %w", i, err))
			}
		}
		prefixes = append(prefixes, x.Ranges...)
	}
	var err error
	if e.ranges, err = ranges.New(prefixes); err != nil {
		errs = append(errs, err)
	}
	return e, errors.Join(errs...)
}

// usable returns what is wrong with the rule of an exception. It may be unlimited.
func (c *config) usable(l *Limit, rule *limit.Rule) error {
	if rule == limit.Unlimited() {
		return nil
	}
	if !rule.Valid() {
		return limit.ErrNilRule
	}
	if own := l.Rule; own.Valid() && own.Name() == rule.Name() && arith.Of(own).Algorithm == arith.Of(rule).Algorithm && !arith.Of(own).SameShape(arith.Of(rule)) {
		return fmt.Errorf("%v has the name of %v and counts differently, so neither would limit a key that both are used for: give it a name of its own", rule, own)
	}
	if name := (&boundLimit{Limit: *l}).name(rule); c.o.Headers == DraftHeaders && !isPrintable(name) {
		return fmt.Errorf("policy %q is not printable ASCII: set Policy", name)
	}
	return inside.CheckRule(c.lim, rule)
}

// add takes what an exception is about, or returns what is wrong with it.
func (e *exceptions) add(x *Exception) (err error) {
	switch {
	case len(x.Ranges)+len(x.Routes)+len(x.Keys) == 0:
		return errors.New("it is about nothing: Ranges, Routes and Keys are empty")
	case len(x.Ranges) > 0 && e.client == nil:
		return errors.New("it has Ranges, and Options no Client: there is no safe default")
	}
	for range x.Ranges {
		e.ranged = append(e.ranged, x.Rule)
	}
	note := func(to map[string]*limit.Rule, list []string, what string) {
		for _, text := range list {
			if _, twice := to[text]; twice || text == "" {
				err = errors.Join(err, fmt.Errorf("a %s is empty, or there twice: %.80q", what, text))
			}
			to[text] = x.Rule
		}
	}
	note(e.routes, x.Routes, "route")
	note(e.keys, x.Keys, "key")
	return err
}

// find returns the rule of a request, nil if it is no exception, and what made it one.
func (e *exceptions) find(r *http.Request, key KeyFunc) (rule *limit.Rule, by exempted) {
	consider := func(is *limit.Rule, why exempted) (blocks bool) {
		blocks = is != nil && is != limit.Unlimited() && is.Limit() == 0 && !is.IsDryRun()
		if blocks || rule == nil && is != nil {
			rule, by = is, why
		}
		return blocks
	}
	if r.Pattern != "" && consider(e.routes[r.Pattern], exempted{route: r.Pattern}) {
		return rule, by
	}
	if len(e.keys) > 0 {
		if k, err := keyOf(key, r); err == nil && consider(e.keys[k], exempted{key: true}) {
			return rule, by
		}
	}
	if len(e.ranged) > 0 {
		if i := e.ranges.Find(e.client(r)); i >= 0 {
			consider(e.ranged[i], exempted{prefix: e.ranges.Prefix(i)})
		}
	}
	return rule, by
}

// exempted is why a limit does not count a request.
type exempted struct {
	route  string
	key    bool
	prefix netip.Prefix
}

// String says it in words. A key may be a secret.
func (e exempted) String() string {
	switch {
	case e.route != "":
		return "route " + e.route
	case e.key:
		return "key"
	case e.prefix.IsValid():
		return "address in " + e.prefix.String()
	}
	return "rule"
}

// counted returns the name under which a limit counts requests that it does not limit.
func (l *boundLimit) counted() string {
	if l.Rule.Valid() {
		return l.Rule.Name()
	}
	return l.Policy
}

// without returns the limits but the one at an index.
func without(limits []*boundLimit, i int) []*boundLimit {
	return slices.Delete(slices.Clone(limits), i, i+1)
}
