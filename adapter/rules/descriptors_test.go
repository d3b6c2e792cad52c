package rules

import (
	"strings"
	"testing"
	"time"
)

// entries makes entries of "key=value key=value".
func entries(text string) (list []Entry) {
	for f := range strings.FieldsSeq(text) {
		k, v, _ := strings.Cut(f, "=")
		list = append(list, Entry{k, v})
	}
	return list
}

// rated is a descriptor of so many requests per unit.
const rated = ", rate_limit: {unit: second, requests_per_unit: "

// A unit is as long as envoyproxy/ratelimit counts it, however it is written.
func TestUnits(t *testing.T) {
	const day = 24 * time.Hour
	for unit, want := range map[string]time.Duration{
		"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 30 * day, "year": 365 * day,
	} {
		for _, word := range []string{unit, strings.ToUpper(unit)} {
			set := must(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: "+word+", requests_per_unit: 3}}]\n")
			if d := set.Descriptor("d", entries("a=b")); d.Rule.Period() != want || d.Unit != unit {
				t.Errorf("%s: %v of %v, want %v", word, d.Rule.Period(), d.Unit, want)
			}
		}
	}
	if len(units) != 7 || len(unitNames) != 7 {
		t.Errorf("%v, %v: not all are tested", units, unitNames)
	}
}

// Requests are counted together if, and only if, envoyproxy/ratelimit does so: by domain and
// entries. So a value that gets a limit of its own keeps what it has used.
func TestDescriptorKeys(t *testing.T) {
	text := "domain: d\ndescriptors:\n  - {key: ip" + rated + "10}}\n  - {key: path, value: /s/*, share_threshold: true, descriptors: [{key: user" + rated + "1}}]}\n"
	set := must(t, text)
	special := must(t, text+"  - {key: ip, value: 1.1.1.1"+rated+"100}}\n")
	counter := func(set *Set, request string) string {
		d := set.Descriptor("d", entries(request))
		return d.Rule.Name() + " " + d.Key(entries(request))
	}
	if a, b := counter(set, "ip=1.1.1.1"), counter(special, "ip=1.1.1.1"); a != b {
		t.Errorf("%s became %s", a, b)
	}
	if size := special.Size(); size.Domains != 1 || size.Descriptors != 3 || !set.HasDomain("d") || set.HasDomain("e") {
		t.Errorf("%+v", size)
	}
	if a, b := counter(set, "ip=1.1.1.1"), counter(set, "ip=1.1.1.2"); a == b {
		t.Errorf("two addresses are %s", a)
	}
	if a, b := counter(set, "path=/s/1 user=u"), counter(set, "path=/s/2 user=u"); a != b {
		t.Errorf("%s and %s share a threshold", a, b)
	}
	if a, b := counter(set, "path=/s/1 user=u"), counter(set, "path=/s/1 user=v"); a == b {
		t.Errorf("two users are %s", a)
	}
}

// A limit that replaces another one of the same request is the only one that counts.
func TestDropReplaced(t *testing.T) {
	set := must(t, `
domain: d
descriptors:
  - {key: a, value: "1", descriptors: [{key: user, value: u, rate_limit: {name: specific, unit: second, requests_per_unit: 5}}]}
  - {key: b, value: "2", descriptors: [{key: user, value: u, rate_limit: {replaces: [{name: specific}, {name: free}], unit: second, requests_per_unit: 10}}]}
  - {key: c, rate_limit: {name: free, unlimited: true}}
`)
	a, b, free := set.Descriptor("d", entries("a=1 user=u")), set.Descriptor("d", entries("b=2 user=u")), set.Descriptor("d", entries("c=3"))
	for _, c := range []struct{ found, want []*Descriptor }{
		{[]*Descriptor{a}, []*Descriptor{a}},
		{[]*Descriptor{b, nil}, []*Descriptor{b, nil}},
		{[]*Descriptor{a, nil, b}, []*Descriptor{nil, nil, b}},
		{[]*Descriptor{b, a, a}, []*Descriptor{b, nil, nil}},
		{[]*Descriptor{free, b}, []*Descriptor{free, b}}, // nothing to replace
		{make([]*Descriptor, 40), make([]*Descriptor, 40)},
		{nil, nil},
	} {
		DropReplaced(c.found)
		for i := range c.want {
			if c.found[i] != c.want[i] {
				t.Errorf("%d of %d: %+v", i, len(c.want), c.found[i])
			}
		}
	}
}

// What the limiter has nothing for is an error that says so.
func TestDescriptorMistakes(t *testing.T) {
	one := func(fields string) string { return "domain: d\ndescriptors:\n  - {key: a, " + fields + "}\n" }
	for _, c := range []struct{ text, want string }{
		{one("rate_limit: {unit: fortnight, requests_per_unit: 1}"), `3:33: domains.d.descriptors[key=a].rate_limit.unit: there is no unit "fortnight"; the units are second,`},
		{one("rate_limit: {unit: seconds, requests_per_unit: 1}"), "did you mean second?"},
		{one("rate_limit: {unit: second}"), "requests_per_unit: is missing"},
		{one("rate_limit: {requests_per_unit: 5}"), "unit: is missing"},
		{one("rate_limit: {unit: second, requests_per_unit: 4294967296}"), "must be 0 to 4294967295"},
		{one("rate_limit: {unlimited: true, unit: second}"), "unit: must not be given when it is unlimited"},
		{"domain: d\ndescriptors:\n  - key: a\n    rate_limit:\n", "rate_limit: must be a mapping of fields, not nothing"},
		{one("rate_limt: {}"), "unknown field, did you mean rate_limit?"},
		{one("value: b, share_threshold: true"), "share_threshold: is for a value with a *"},
		{one("descriptors: []"), "is empty: a domain without descriptors limits nothing"},
		{one("descriptors: [{value: b}]"), "3:28: domains.d.descriptors[key=a].descriptors[value=b].key: is missing"},
		{one("value: b}\n  - {key: a, value: b"), "this descriptor was given before, in line 3"},
		{one("rate_limit: {name: n, replaces: [{name: n}], unit: second, requests_per_unit: 1}"), "a limit cannot replace itself"},
		{one("rate_limit: {replaces: [{}], unit: second, requests_per_unit: 1}"), "replaces[0].name: is missing"},
		{"domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: second\n    requests_per_unit: 1\n    replaces:\n    - name:\n", "8:13: domains.d.descriptors[key=a].rate_limit.replaces[0].name: must be text, not nothing"},
		{one("rate_limit: {name: some, replaces: [{name: sme}], unit: second, requests_per_unit: 1}"), `replaces[name=sme].name: there is no limit of the name "sme" in this domain, did you mean some?`},
		{one("rate_limit: {unit: second, requests_per_unit: 1, unit_multiplier: 2}"), "unit_multiplier: unknown field"},
		{"0.25: d\ndescriptors: [{key: a}]\n", `1:1: ["0.25"]: unknown field`},
		{"descriptors: [{key: a}]\n", "domain: is missing"},
		{"domain: d\n", "descriptors: is missing"},
		{"domain: d\ndescriptors: [{key: a*c, value: b}]\n", "2:21: domains.d.descriptors[key=\"a*c\",value=b].key: a * is for a value, not for a key"},
		{"domain: d\ndescriptors: [a]\n", "must be a mapping of fields, not a single value"},
		{"domain: d\ndescriptors: [{key: a}]\n---\ndomain: d\ndescriptors: [{key: a}]\n", `4:9: domain: there is a domain "d" in this file already`},
		{"domain: d\ndescriptors: [{key: a}]\nrules: {}\n", "rules: unknown field; the fields here are domain, descriptors"},
	} {
		problems := Validate("envoy.yaml", []byte(c.text))
		if !strings.Contains(problems.Error(), c.want) {
			t.Errorf("%q:\n\t%v\nwant one that says\n\t%s", c.text, problems.Error(), c.want)
		}
	}
}
