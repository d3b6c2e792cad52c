package rules

import (
	"net/netip"
	"strings"

	"github.com/hybridlimit/hybridlimit/adapter/internal/ranges"
)

// subjectFields say what an override is about. An override has one of them.
var subjectFields = []string{"key", "prefix", "cidr", "route"}

// maxKeyBytes bounds the key or the route of an override.
const maxKeyBytes = 1024

// overrideItem reads an override. seen has the lines of those before, by what they are about.
func (b *builder) overrideItem(n *node, path string, seen map[string]int) {
	if !b.mapping(n, path) {
		return
	}
	b.known(n, path, overrideFields...)
	kind, subject := b.subjectOf(n, path)
	if subject == nil {
		b.overrideOf(n, path, "") // for what else is wrong
		return
	}
	at := join(path, kind)
	if kind == "cidr" {
		prefixes := b.cidrs(subject, at, seen)
		about := kind
		if len(prefixes) > 0 {
			about += " " + prefixes[0].String()
		}
		o := b.overrideOf(n, path, about)
		for _, p := range prefixes {
			b.ranges, b.set.ranged = append(b.ranges, p), append(b.set.ranged, o)
		}
		return
	}
	text, ok := b.text(subject, at)
	if len(text) > maxKeyBytes {
		b.add(subject.place, at, "has at most %d bytes, this one has %d", maxKeyBytes, len(text))
		ok = false
	}
	if ok && !b.first(n.place, path, kind+" "+text, seen) {
		ok = false
	}
	about := text
	if kind == "route" {
		about = kind + " " + text
		ok = ok && b.isRoute(subject, at, text)
	}
	o := b.overrideOf(n, path, about)
	switch {
	case !ok:
	case kind == "key":
		b.set.keys[text] = o
		if p := addressOf(text); p.IsValid() && b.set.addresses[p] == nil {
			b.set.addresses[p] = o
		}
	case kind == "prefix":
		b.set.prefixes[text] = o
	default:
		b.set.routes[text] = o
	}
}

// subjectOf returns which field says what an override is about, nil and a problem if it is not one.
func (b *builder) subjectOf(n *node, path string) (kind string, v *node) {
	for _, name := range subjectFields {
		is := n.get(name)
		switch {
		case is == nil:
		case v != nil:
			b.add(is.place, path, "an override has one of key, prefix, cidr and route: write one for each")
			return "", nil
		default:
			kind, v = name, is
		}
	}
	if v == nil {
		b.add(n.place, path, "an override needs a key, a prefix of keys, a cidr or a route")
	}
	return kind, v
}

// first reports whether there is no override of the same yet; if there is, that is a problem.
func (b *builder) first(at place, path, about string, seen map[string]int) bool {
	if line, twice := seen[about]; twice {
		b.add(at, path, "there is an override of this already, in line %d", line)
		return false
	}
	seen[about] = at.line
	return true
}

// cidrs reads one range of addresses, or a list of them.
func (b *builder) cidrs(n *node, path string, seen map[string]int) (out []netip.Prefix) {
	items := []*node{n}
	if n.kind == list {
		items = n.items
	}
	if len(items) == 0 {
		b.add(n.place, path, "must not be empty")
	}
	for i, item := range items {
		at := path
		if n.kind == list {
			at = identity(path, i, item)
		}
		if p, ok := b.cidr(item, at); ok && b.first(item.place, at, "cidr "+p.String(), seen) {
			out = append(out, p)
		}
	}
	return out
}

// cidr reads a range of addresses.
func (b *builder) cidr(n *node, path string) (p netip.Prefix, ok bool) {
	if n.kind == mapping { // the parser takes a colon in brackets for that of a field
		b.add(n.place, path, "must be a range of addresses, not a mapping of fields: write one of IPv6 in quotes")
		return p, false
	}
	text, ok := b.text(n, path)
	if !ok {
		return p, false
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		if a, alone := netip.ParseAddr(text); alone == nil && a.Zone() == "" {
			b.add(n.place, path, "%s is one address: write %s", clip(text), netip.PrefixFrom(a, a.BitLen()))
			return p, false
		}
		b.add(n.place, path, "must be a range of addresses such as 10.0.0.0/8 or 2001:db8::/32%s", is(n))
		return p, false
	}
	if p, err = ranges.Check(p); err != nil {
		b.add(n.place, path, "%v", err)
		return p, false
	}
	return p, true
}

// finishRanges makes the table of the ranges that were read.
func (b *builder) finishRanges(at *node) {
	if len(b.ranges) == 0 {
		return
	}
	var err error
	if b.set.ranges, err = ranges.New(b.ranges); err != nil { // each was checked
		b.add(at.place, "overrides", "%v", err)
	}
}

// isRoute checks the text of a route: it is compared as it is, so that one which no router writes would
// have no effect.
func (b *builder) isRoute(n *node, path, text string) bool {
	method, _, spaced := strings.Cut(text, " ")
	switch {
	case !strings.Contains(text, "/"):
		b.add(n.place, path, "must be a route such as GET /health, as the router has it, or /package.Service/Method%s", is(n))
	case spaced && (method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != ""):
		b.add(n.place, path, "a method is written in capitals and before the path, as in GET /health%s", is(n))
	default:
		return true
	}
	return false
}

// addressed reads whether the keys of a rule are addresses.
func (b *builder) addressed(n *node, path string) bool {
	v := n.get("keys")
	if v == nil {
		return false
	}
	if v.kind == scalar && v.text == "addresses" {
		return true
	}
	b.add(v.place, join(path, "keys"), "must be addresses, for a rule whose keys are addresses of clients%s", is(v))
	return false
}
