package rules

import (
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

const exactFile = `
rules:
  login: {algorithm: sliding-window, limit: 5, per: 1m, exact: true}
  loose: {algorithm: sliding-window, limit: 7, per: 1m}
  several: {limits: "2/s, 9/h", exact: true}
  trial: {algorithm: gcra, limit: 3, per: 1m, exact: true, dry_run: true}
plans:
  pro: {login: {limit: 50}, loose: {exact: true}, several: {limits: "20/s, 90/h"}}
  fast: {login: {exact: false}, several: {exact: false}}
overrides:
  - {key: acme, plan: fast, rules: {login: {limit: 60}}}
  - {key: hers, rules: {login: {limit: 6}, loose: {exact: true}}}
  - {key: evil, blocked: true}
  - {key: bad, rules: {login: {blocked: true}, several: {blocked: true, exact: true}, trial: {blocked: true}}}
  - {key: free, unlimited: true}
---
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 5, exact: true}}
  - {key: b, shadow_mode: true, rate_limit: {limits: "2/s, 9/h", exact: true}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 5, exact: false}}
`

// Who gets an exact rule: plans and overrides have that of the rule unless they say otherwise. Who is
// blocked is not asked about.
func TestExact(t *testing.T) {
	set := must(t, exactFile)
	for _, c := range []struct {
		name, plan, key string
		exact, dry      bool
	}{
		{"login", "", "k", true, false},
		{"login", "pro", "k", true, false},
		{"login", "fast", "k", false, false},
		{"login", "", "acme", false, false}, // an override that gives a limit has the rest of its plan
		{"login", "", "hers", true, false},
		{"login", "", "evil", false, false},
		{"login", "", "bad", false, false},
		{"login", "", "free", false, false},
		{"loose", "", "k", false, false},
		{"loose", "pro", "k", true, false},
		{"loose", "", "hers", true, false},
		{"several", "", "k", true, false},
		{"several", "fast", "k", false, false},
		{"trial", "", "k", true, true},
		{"trial", "", "bad", false, false},
	} {
		rule := set.For(c.name, c.key)
		if c.plan != "" {
			rule = set.ForPlan(c.name, c.plan, c.key)
		}
		if rule.IsExact() != c.exact || rule.IsDryRun() != c.dry || !rule.Valid() && rule != limit.Unlimited() {
			t.Errorf("%+v: %v", c, rule)
		}
		if name := rule.Name(); rule != limit.Unlimited() && !strings.HasPrefix(name, c.name) {
			t.Errorf("%+v is called %q", c, name)
		}
	}
	for key, want := range map[string]string{
		"a": `sliding-window "d@a/minute": 5 per minute (exact)`,
		"c": `sliding-window "d@c/minute": 5 per minute`,
	} {
		if got := set.Descriptor("d", entries(key+"=x")).Rule.String(); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	if r := set.Descriptor("d", entries("b=x")).Rule; !r.IsExact() || !r.IsDryRun() || len(r.Parts()) != 2 {
		t.Errorf("%v", r)
	}
}
