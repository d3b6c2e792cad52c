package rules

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The fields of a document of rules.
var (
	topFields      = []string{"rules", "plans", "overrides"}
	overrideFields = []string{"key", "prefix", "cidr", "route", "plan", "unlimited", "blocked", "rules"}
)

// builder makes a [Set] of documents.
type builder struct {
	decoder
	set   *Set
	old   map[build]*limit.Rule   // of the set before, so that equal rules stay the same pointer
	check func(*limit.Rule) error // Options.Check; nil: none

	ranges []netip.Prefix // of the overrides, beside ranged of the set

	named     []string    // names of limits of the domain that is read
	replacing []reference // names that its limits replace
}

// sections reads a document of rules, plans and overrides.
func (b *builder) sections(doc *node) {
	b.known(doc, "", topFields...)
	section := doc.get("rules")
	if section == nil {
		b.add(doc.place, "rules", "is missing: a file without rules limits nothing")
		return
	}
	if b.mapping(section, "rules") {
		if len(section.fields) == 0 {
			b.add(section.place, "rules", "is empty: a file without rules limits nothing")
		}
		b.unique(section, "rules")
		for _, f := range section.fields {
			b.namedRule(f)
		}
	}
	if section := doc.get("plans"); section != nil && b.mapping(section, "plans") {
		b.unique(section, "plans")
		for _, f := range section.fields {
			b.plan(f)
		}
	}
	if section := doc.get("overrides"); section != nil && b.list(section, "overrides") {
		seen := map[string]int{}
		for i, item := range section.items {
			b.overrideItem(item, identity("overrides", i, item), seen)
		}
		b.finishRanges(section)
	}
	if section.kind == mapping {
		b.shared(section)
	}
}

// shared finds rules whose name is that of one of several limits: both would have one counter.
func (b *builder) shared(rules *node) {
	said := map[*node]bool{}
	for _, r := range b.set.built {
		for _, part := range r.Parts() {
			if v := rules.get(part.Name()); v != nil && !said[v] {
				said[v] = true
				b.add(v.place, join("rules", part.Name()), "one of the limits of %s has this name, so both would share a counter", r.Name())
			}
		}
	}
}

// isName checks the name of a rule or plan. It ends up in header fields and metrics, and the
// @ is for what is derived from it.
func (b *builder) isName(f field, path, what string) bool {
	odd := strings.IndexFunc(f.name, func(r rune) bool { return r < ' ' || r > '~' || r == '@' })
	switch {
	case len(f.name) > arith.MaxNameBytes:
		b.add(f.place, path, "the name of a %s has at most %d bytes, this one has %d", what, arith.MaxNameBytes, len(f.name))
	case odd >= 0:
		b.add(f.place, path, "the name of a %s is printable ASCII without @", what)
	default:
		return true
	}
	return false
}

func (b *builder) namedRule(f field) {
	path := join("rules", f.name)
	if !b.isName(f, path, "rule") || !b.mapping(f.value, path) {
		return
	}
	b.known(f.value, path, ruleFields...)
	s := numbers{}
	ok, several := true, f.value.get("limits") != nil
	if v := f.value.get("algorithm"); v == nil && several {
	} else if v == nil {
		b.add(f.place, join(path, "algorithm"), "is missing: one of %s", strings.Join(algorithmNames, ", "))
		ok = false
	} else if word, fine := b.text(v, join(path, "algorithm")); !fine {
		ok = false
	} else if s.algorithm = algorithms[word]; s.algorithm == 0 {
		b.add(v.place, join(path, "algorithm"), "there is no %q%s; the algorithms are %s", clip(word), meant(word, algorithmNames), strings.Join(algorithmNames, ", "))
		ok = false
	}
	for _, name := range []string{"limit", "per"} {
		if f.value.get(name) == nil && !several {
			b.add(f.place, join(path, name), "is missing, as in limit: 100 and per: 1m")
			ok = false
		}
	}
	s, fine := b.numbers(f.value, path, s)
	if !ok || !fine {
		b.set.rules[f.name] = nil // so that it is not called unknown as well
		return
	}
	n := &named{numbers: s, rule: b.rule(f.value, path, f.name, s), addressed: b.addressed(f.value, path)}
	if n.rule != nil { // else the same would be said twice
		s.unlimited, s.blocked, s.dry = false, true, false // who is blocked is so during a dry run, too
		n.blocked = b.rule(f.value, path, f.name, s)
	}
	b.set.rules[f.name] = n
}

// rule returns the rule of these numbers, the one that was there if there was. If it cannot
// be built, or not be used, that is a problem.
func (b *builder) rule(at *node, path, name string, s numbers) *limit.Rule {
	made := build{name, s}
	if r := b.set.built[made]; r != nil {
		return r
	}
	r := b.old[made]
	if r == nil {
		var err error
		if r, err = s.rule(name); err != nil {
			b.add(at.place, path, "%s", plain(err))
			return nil
		}
		if err := b.usable(r); err != nil {
			b.add(at.place, path, "%s", plain(err))
			return nil
		}
	}
	b.set.built[made] = r
	return r
}

// usable returns what Options.Check has against a rule. No limiter is asked about what is
// unlimited.
func (b *builder) usable(r *limit.Rule) error {
	if b.check == nil || r == limit.Unlimited() {
		return nil
	}
	return b.check(r)
}

func (b *builder) plan(f field) {
	path := join("plans", f.name)
	if !b.isName(f, path, "plan") {
		return
	}
	p := &plan{name: f.name}
	b.set.plans[f.name] = p
	if f.value.kind != nothing && b.mapping(f.value, path) {
		b.unique(f.value, path)
		p.rules, p.numbers = b.changed(f.value, path, "@"+f.name, nil)
	}
}

// changed reads rules by name that differ from those of the file in their numbers. Those
// that must not share a counter with the rule get its name and suffix.
func (b *builder) changed(n *node, path, suffix string, over *plan) (map[string]*limit.Rule, map[string]numbers) {
	out, all := map[string]*limit.Rule{}, map[string]numbers{}
	for _, f := range n.fields {
		at := join(path, f.name)
		r, there := b.set.rules[f.name]
		if !there {
			unknown(b.decoder, f.place, at, "rule", f.name, b.set.rules)
			continue
		}
		if !b.mapping(f.value, at) {
			continue
		}
		if v := f.value.get("algorithm"); v != nil {
			b.add(v.place, join(at, "algorithm"), "only the rule itself has an algorithm: another one would count anew")
			continue
		}
		b.known(f.value, at, numberFields...)
		if r == nil {
			b.numbers(f.value, at, numbers{}) // for what else is wrong
			continue
		}
		base := r.numbers
		if s, differs := over.numbersOf(f.name); differs {
			base = s
		}
		s, fine := b.numbers(f.value, at, base)
		if !fine {
			continue
		}
		name := f.name
		if s.shape() != r.numbers.shape() {
			name += suffix
		}
		if rule := b.rule(f.value, at, name, s); rule != nil {
			out[f.name], all[f.name] = rule, s
		}
	}
	return out, all
}

func (p *plan) numbersOf(name string) (s numbers, ok bool) {
	if p != nil {
		s, ok = p.numbers[name]
	}
	return s, ok
}

// overrideOf reads what an override says, of what it is about.
func (b *builder) overrideOf(n *node, path, about string) *override {
	o := &override{}
	if v := n.get("plan"); v != nil {
		if name, ok := b.text(v, join(path, "plan")); ok {
			if o.plan = b.set.plans[name]; o.plan == nil {
				unknown(b.decoder, v.place, join(path, "plan"), "plan", name, b.set.plans)
			}
		}
	}
	if v := n.get("unlimited"); v != nil {
		o.unlimited, _ = b.boolean(v, join(path, "unlimited"))
	}
	if v := n.get("blocked"); v != nil {
		o.blocked, _ = b.boolean(v, join(path, "blocked"))
	}
	said := 0
	for _, name := range []string{"plan", "unlimited", "blocked"} {
		if n.get(name) != nil {
			said++
		}
	}
	rules := n.get("rules")
	switch {
	case said > 1:
		b.add(n.place, path, "only one of plan, unlimited and blocked can be said")
	case said == 0 && rules == nil:
		b.add(n.place, path, "an override needs one of plan, rules, unlimited and blocked")
	}
	if rules != nil && b.mapping(rules, join(path, "rules")) {
		b.unique(rules, join(path, "rules"))
		// A key may be a secret, and names of rules are shown in metrics.
		o.rules, _ = b.changed(rules, join(path, "rules"), suffixOf(about), o.plan)
	}
	return o
}

// unknown notes that something is named that is not there.
func unknown[V any](d decoder, at place, path, what, name string, there map[string]V) {
	if d.full() { // not worth the search for what was meant
		d.skipped++
		return
	}
	names := slices.Sorted(maps.Keys(there))
	d.add(at, path, "there is no %s %q%s; the %ss are %s", what, clip(name), meant(name, names), what, some(names))
}

// some lists names, not too many of them.
func some(names []string) string {
	const most = 10
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return strings.Join(names[:most], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}
