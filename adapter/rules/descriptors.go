package rules

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The fields of a document in the format of envoyproxy/ratelimit.
var (
	domainFields     = []string{"domain", "descriptors"}
	descriptorFields = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "detailed_metric", "share_threshold", "value_to_metric", "quota_mode", "metadata"}
	rateLimitFields  = []string{"unit", "requests_per_unit", "limits", "exact", "unlimited", "name", "replaces"}
)

// units are the units of a rate limit. A month and a year are as long as
// envoyproxy/ratelimit counts them.
var units = map[string]time.Duration{
	"second": time.Second,
	"minute": time.Minute,
	"hour":   time.Hour,
	"day":    24 * time.Hour,
	"week":   7 * 24 * time.Hour,
	"month":  30 * 24 * time.Hour,
	"year":   365 * 24 * time.Hour,
}

var unitNames = []string{"second", "minute", "hour", "day", "week", "month", "year"}

// domain reads a document of descriptors.
func (b *builder) domain(doc *node) {
	b.known(doc, "", domainFields...)
	v := doc.get("domain")
	if v == nil {
		b.add(doc.place, "domain", "is missing: descriptors belong to a domain")
		return
	}
	name, ok := b.text(v, "domain")
	if !ok {
		return
	}
	if _, twice := b.set.domains[name]; twice {
		b.add(v.place, "domain", "there is a domain %q in this file already", clip(name))
		return
	}
	root := &level{}
	b.set.domains[name] = root
	l := doc.get("descriptors")
	if l == nil {
		b.add(doc.place, "descriptors", "is missing: a domain without descriptors limits nothing")
		return
	}
	b.named, b.replacing = nil, nil
	b.descriptors(l, join("domains", name)+".descriptors", root, &trail{domain: name})
	for _, r := range b.replacing {
		if !slices.Contains(b.named, r.name) {
			b.add(r.place, r.path, "there is no limit of the name %q in this domain%s", clip(r.name), meant(r.name, b.named))
		}
	}
}

// reference is the name of a limit that another one replaces.
type reference struct {
	place
	path, name string
}

// trail is the way from a domain to a descriptor.
type trail struct {
	domain string
	keys   []string // as they are
	stat   []string // key_value, or the key
	shared []string // the pattern that stands for all values which match it; "": each counts for itself
}

func (t *trail) to(key, value, shared string) *trail {
	stat := key
	if value != "" {
		stat += "_" + value
	}
	return &trail{t.domain, append(slices.Clone(t.keys), key), append(slices.Clone(t.stat), stat), append(slices.Clone(t.shared), shared)}
}

func (b *builder) descriptors(n *node, path string, into *level, way *trail) {
	if !b.list(n, path) {
		return
	}
	if len(n.items) == 0 {
		b.add(n.place, path, "is empty: a domain without descriptors limits nothing")
	}
	lines := map[Entry]int{}
	for i, item := range n.items {
		at := identity(path, i, item)
		if !b.mapping(item, at) {
			continue
		}
		b.known(item, at, descriptorFields...)
		e, ok := b.entry(item, at)
		if !ok {
			continue
		}
		if line, twice := lines[e]; twice {
			b.add(item.place, at, "this descriptor was given before, in line %d", line)
			continue
		}
		lines[e] = item.line
		b.descriptor(item, at, e, into, way)
	}
}

// entry reads the key and value of a descriptor.
func (b *builder) entry(n *node, path string) (e Entry, ok bool) {
	v := n.get("key")
	if v == nil {
		b.add(n.place, join(path, "key"), "is missing: a descriptor needs a key")
		return e, false
	}
	if e.Key, ok = b.text(v, join(path, "key")); !ok {
		return e, false
	}
	// An empty value is the same as none.
	if v := n.get("value"); v != nil && v.kind != nothing && (v.kind != scalar || v.text != "") {
		e.Value, ok = b.text(v, join(path, "value"))
	}
	if strings.Contains(e.Key, "*") {
		b.add(v.place, join(path, "key"), "a * is for a value, not for a key")
		ok = false
	}
	return e, ok
}

// unsupported are fields of the format that would have no effect when they are true, and why.
var unsupported = map[string]string{
	"detailed_metric": "no metric has a label for a value, of which clients can make any number",
	"value_to_metric": "no metric has a label for a value, of which clients can make any number",
	"quota_mode":      "the limiter has nothing like it",
}

// descriptor reads one descriptor, and those that are nested in it.
func (b *builder) descriptor(n *node, path string, e Entry, into *level, way *trail) {
	shared := ""
	if b.flag(n, path, "share_threshold", "rate_limit", "descriptors") {
		if shared = e.Value; !strings.Contains(e.Value, "*") {
			b.add(n.get("share_threshold").place, join(path, "share_threshold"), "is for a value with a *")
		}
	}
	for name, why := range unsupported {
		if b.flag(n, path, name) {
			b.add(n.get(name).place, join(path, name), "is not supported: %s; leave it out", why)
		}
	}
	if v := n.get("metadata"); v != nil {
		b.add(v.place, join(path, "metadata"), "is not supported: answers have no dynamic metadata; leave it out")
	}
	next := &level{}
	way = way.to(e.Key, e.Value, shared)
	shadow := b.flag(n, path, "shadow_mode", "rate_limit")
	if v := n.get("rate_limit"); v != nil && b.mapping(v, join(path, "rate_limit")) {
		if d := b.rateLimit(v, join(path, "rate_limit"), way, shadow); d != nil {
			next.limit = d
		}
	}
	if v := n.get("descriptors"); v != nil {
		b.descriptors(v, path+".descriptors", next, way)
	}
	into.put(e, next)
}

// flag reads a field that is true or false, and false if it is missing. It may not be true if
// n has none of the fields beside which alone it has an effect.
func (b *builder) flag(n *node, path, name string, beside ...string) bool {
	v := n.get(name)
	if v == nil {
		return false
	}
	value, _ := b.boolean(v, join(path, name))
	if value && beside != nil && !slices.ContainsFunc(beside, func(f string) bool { return n.get(f) != nil }) {
		b.add(v.place, join(path, name), "has no effect without %s beside it", strings.Join(beside, " or "))
	}
	return value
}

// rateLimit reads the limit of a descriptor; nil if something is wrong with it.
func (b *builder) rateLimit(n *node, path string, way *trail, shadow bool) *Descriptor {
	before := b.count()
	b.known(n, path, rateLimitFields...)
	d := &Descriptor{
		Path: way.domain + "." + strings.Join(way.stat, "."), Group: way.domain + "@" + strings.Join(way.keys, "."), shared: way.shared,
	}
	if v := n.get("name"); v != nil {
		d.Name, _ = b.text(v, join(path, "name"))
		b.named = append(b.named, d.Name)
	}
	if v := n.get("replaces"); v != nil {
		d.Replaces = b.replaces(v, join(path, "replaces"), d.Name)
	}
	if b.flag(n, path, "unlimited") {
		d.Rule = limit.Unlimited()
		b.without(n, path, "when it is unlimited", "unit", "requests_per_unit", "limits", "exact")
	} else if v := n.get("limits"); v != nil {
		b.without(n, path, "beside limits, which says all of it", "unit", "requests_per_unit")
		if text, ok := b.limits(v, join(path, "limits")); ok {
			d.Rule = b.rule(n, path, way.domain+"@"+strings.Join(way.keys, "."), numbers{limits: text, exact: b.flag(n, path, "exact"), dry: shadow})
		}
	} else {
		b.rate(n, path, way, shadow, d)
	}
	if b.count() > before {
		return nil
	}
	return d
}

// without checks that n has none of these fields.
func (b *builder) without(n *node, path, when string, names ...string) {
	for _, name := range names {
		if v := n.get(name); v != nil {
			b.add(v.place, join(path, name), "must not be given %s", when)
		}
	}
}

// rate reads unit and requests_per_unit.
func (b *builder) rate(n *node, path string, way *trail, shadow bool, d *Descriptor) {
	for _, name := range []string{"unit", "requests_per_unit"} {
		if n.get(name) == nil {
			b.add(n.place, join(path, name), "is missing")
		}
	}
	v, r := n.get("unit"), n.get("requests_per_unit")
	if r != nil {
		if per, ok := b.integer(r, join(path, "requests_per_unit"), 0, math.MaxUint32); ok {
			d.RequestsPerUnit = uint32(per)
		}
	}
	if v == nil {
		return
	}
	word, ok := b.text(v, join(path, "unit"))
	if !ok {
		return
	}
	d.Unit = strings.ToLower(word)
	per := units[d.Unit]
	if per == 0 {
		b.add(v.place, join(path, "unit"), "there is no unit %q%s; the units are %s", clip(word), meant(word, unitNames), strings.Join(unitNames, ", "))
		return
	}
	// The name has no values: who gets a limit of his own keeps his counter.
	name := way.domain + "@" + strings.Join(way.keys, ".") + "/" + d.Unit
	d.Rule = b.rule(n, path, name, numbers{algorithm: arith.SlidingWindow, limit: int64(d.RequestsPerUnit), per: per, exact: b.flag(n, path, "exact"), dry: shadow})
}

// replaces reads the names of the limits that a limit replaces.
func (b *builder) replaces(n *node, path, own string) (names []string) {
	if !b.list(n, path) {
		return nil
	}
	for i, item := range n.items {
		at := identity(path, i, item)
		if !b.mapping(item, at) {
			continue
		}
		b.known(item, at, "name")
		v := item.get("name")
		if v == nil {
			b.add(item.place, join(at, "name"), "is missing")
			continue
		}
		name, ok := b.text(v, join(at, "name"))
		if !ok {
			continue
		}
		if name == own {
			b.add(v.place, join(at, "name"), "a limit cannot replace itself")
		}
		names = append(names, name)
		b.replacing = append(b.replacing, reference{v.place, join(at, "name"), name})
	}
	return names
}
