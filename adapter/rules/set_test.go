package rules

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

const plans = `
rules:
  api: {algorithm: token-bucket, limit: 10, per: 1s, burst: 20}
  calls: {algorithm: sliding-window, limit: 100, per: 1m}
  open: {algorithm: fixed-window, limit: 5, per: 1h, unlimited: true}
plans:
  free: {}
  pro:
    api: {limit: 50}
    calls: {limit: 5000}
  trial: {calls: {dry_run: true}}
overrides:
  - {key: acme, plan: pro}
  - {key: acme-2, plan: pro, rules: {calls: {limit: 6000}, api: {burst: 99}}}
  - {key: monitor, unlimited: true}
  - {key: monitor-2, unlimited: true, rules: {calls: {limit: 1}}}
  - {key: evil, blocked: true}
  - {key: 12345, rules: {calls: {blocked: true}, open: {limit: 2}}}
  - {prefix: "10.", rules: {calls: {limit: 10}}}
  - {prefix: "10.0.", rules: {calls: {limit: 20}}}
  - {prefix: "10.0.0.0", blocked: true}
  - {key: "10.0.0.7", rules: {calls: {unlimited: true}}}
  - {cidr: 172.16.0.0/12, rules: {calls: {limit: 30}}}
  - cidr:
      - 203.0.113.0/24
      - 2001:db8::/32
    unlimited: true
  - {route: GET /health, unlimited: true}
`

// Who gets which rule.
func TestFor(t *testing.T) {
	set := must(t, plans)
	for _, c := range []struct{ name, key, want string }{
		{"api", "anyone", `token-bucket "api": 20, refilling 10 per second`},
		{"calls", "anyone", `sliding-window "calls": 100 per minute`},
		{"open", "anyone", "unlimited"},
		{"none", "anyone", "invalid rule"},
		{"calls", "", `sliding-window "calls": 100 per minute`},
		{"calls", "acme", `sliding-window "calls": 5000 per minute`},
		{"api", "acme", `token-bucket "api@pro": 20, refilling 50 per second`}, // another rate, another counter
		{"open", "acme", "unlimited"},
		{"calls", "acme-2", `sliding-window "calls": 6000 per minute`},
		{"api", "acme-2", `token-bucket "api@key-` + suffixOf("acme-2")[5:] + `": 99, refilling 50 per second`}, // over the numbers of the plan
		{"api", "monitor", "unlimited"},
		{"none", "monitor", "invalid rule"}, // a rule that is not there is not unlimited
		{"calls", "monitor-2", `sliding-window "calls": 1 per minute`},
		{"api", "evil", `token-bucket "api": 0, refilling 10 per second`},
		{"open", "evil", `fixed-window "open": 0 per hour`},
		{"calls", "12345", `sliding-window "calls": 0 per minute`},
		{"open", "12345", `fixed-window "open": 2 per hour`}, // who says a limit is not unlimited
		{"api", "12345", `token-bucket "api": 20, refilling 10 per second`},
		{"calls", "10.9.9.9", `sliding-window "calls": 10 per minute`},
		{"calls", "10.0.9.9", `sliding-window "calls": 20 per minute`},
		{"api", "10.0.9.9", `token-bucket "api": 20, refilling 10 per second`},
		{"calls", "10.0.0.0", `sliding-window "calls": 0 per minute`},
		{"calls", "10.0.0.7", "unlimited"},
		{"calls", "10", `sliding-window "calls": 100 per minute`},
	} {
		if got := set.For(c.name, c.key); got.String() != c.want {
			t.Errorf("%s of %q is %v, want %s", c.name, c.key, got, c.want)
		}
	}
	if set.For("api", "x") != set.Rule("api") || set.For("none", "x") != nil {
		t.Error("a key without an override has another rule than the file")
	}
	want := Size{Rules: 3, Plans: 3, Overrides: 14}
	if set.Size() != want {
		t.Errorf("%+v", set.Size())
	}
}

// A plan that the caller knows of: overrides come first.
func TestForPlan(t *testing.T) {
	set := must(t, plans)
	for _, c := range []struct{ name, plan, key, want string }{
		{"calls", "free", "u", `sliding-window "calls": 100 per minute`},
		{"calls", "pro", "u", `sliding-window "calls": 5000 per minute`},
		{"calls", "trial", "u", `sliding-window "calls": 100 per minute (dry run)`},
		{"calls", "gold", "u", "invalid rule"}, // a plan that nobody knows gets nothing
		{"none", "pro", "u", "invalid rule"},
		{"calls", "pro", "evil", `sliding-window "calls": 0 per minute`},
		{"calls", "free", "acme", `sliding-window "calls": 5000 per minute`},
		{"api", "pro", "10.0.9.9", `token-bucket "api@pro": 20, refilling 50 per second`}, // the override says nothing of it
		{"calls", "pro", "10.0.9.9", `sliding-window "calls": 20 per minute`},
	} {
		if got := set.ForPlan(c.name, c.plan, c.key); got.String() != c.want {
			t.Errorf("%s of %q in %s is %v, want %s", c.name, c.key, c.plan, got, c.want)
		}
	}
	if !set.HasPlan("free") || set.HasPlan("gold") {
		t.Error("HasPlan")
	}
}

// A dry run is a trial of a limit, not of a block.
func TestBlockedInADryRun(t *testing.T) {
	set := must(t, `
rules:
  a: {algorithm: gcra, limit: 5, per: 1s, dry_run: true}
overrides:
  - {key: evil, blocked: true}
  - {key: bad, rules: {a: {blocked: true}}}
  - {key: odd, rules: {a: {blocked: true, dry_run: true}}}
`)
	if !set.Rule("a").IsDryRun() || !set.For("a", "odd").IsDryRun() || set.For("a", "evil").IsDryRun() || set.For("a", "bad").IsDryRun() {
		t.Errorf("%v, %v", set.For("a", "evil"), set.For("a", "bad"))
	}
}

// Rules of one name that are used side by side differ in nothing but the limit: else limiters
// report a conflict, and lose time.
func TestNamesHaveOneShape(t *testing.T) {
	set := must(t, plans)
	shapes := map[string]shaped{}
	for b, r := range set.built {
		if was, there := shapes[b.name]; there && was != b.shape() {
			t.Errorf("%q has %+v and %+v", b.name, was, b.shape())
		}
		shapes[b.name] = b.shape()
		if r != limit.Unlimited() && r.Name() != b.name {
			t.Errorf("%v is called %q", r, b.name)
		}
	}
	if len(shapes) != 5 {
		t.Errorf("names %v", shapes)
	}
}

func TestNilSet(t *testing.T) {
	var none *Set
	for _, set := range []*Set{none, {}} {
		if set.Rule("a") != nil || set.For("a", "k") != nil || set.ForPlan("a", "p", "k") != nil || len(set.Names()) != 0 ||
			set.HasPlan("p") || set.HasDomain("d") || set.Size() != (Size{}) || set.Descriptor("d", []Entry{{"a", "b"}}) != nil {
			t.Error("a set of nothing has something")
		}
	}
}

// Look-ups are on the way of each request.
func TestLookUpsDoNotAllocate(t *testing.T) {
	set := must(t, plans+`---
domain: d
descriptors:
  - key: path
    value: /a/*
    descriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 1}}]
  - {key: path, value: "/v1/*/orders/*", rate_limit: {unit: second, requests_per_unit: 1}}
---
`+manyPatterned(1000))
	f := &File{}
	f.set.Store(set)
	entries, addr := []Entry{{"path", "/a/b"}, {"user", "u"}}, addr("172.16.0.1")
	stars, many := []Entry{{"path", "/v1/acme/orders/1"}}, []Entry{{"path", "/x/5/team-999-a/9"}}
	for name, look := range map[string]func() bool{
		"Rule":       func() bool { return f.Set().Rule("api") != nil },
		"For":        func() bool { return f.Set().For("calls", "anyone") != nil },
		"For key":    func() bool { return f.Set().For("calls", "acme-2") != nil },
		"For prefix": func() bool { return f.Set().For("calls", "10.0.0.0.1") != nil },
		"ForPlan":    func() bool { return f.Set().ForPlan("calls", "pro", "anyone") != nil },
		"ForRequest": func() bool {
			return f.Set().ForRequest("calls", Request{Key: "x", Addr: addr, Route: "GET /none"}) != nil
		},
		"Descriptor": func() bool { return f.Set().Descriptor("d", entries) != nil },
		"stars":      func() bool { return f.Set().Descriptor("d", stars) != nil },
		"many":       func() bool { return f.Set().Descriptor("many", many) != nil },
	} {
		if n := testing.AllocsPerRun(100, func() {
			if !look() {
				t.Fatal(name)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
