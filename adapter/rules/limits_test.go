package rules

import (
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

const limitsFile = `
rules:
  api: {limits: "10/s, 500/m"}
  one: {limits: 7/minute}
  bucket: {limits: 10/s burst 20, dry_run: true}
  plain: {algorithm: sliding-window, limit: 3, per: 1m}
plans:
  pro:
    api: {limits: "50/s, 500/m"}
    one: {limits: 70/hour}
  off:
    api: {unlimited: true}
overrides:
  - {key: bad, blocked: true}
  - {key: mine, plan: pro, rules: {api: {limits: "1/s"}}}
---
domain: d
descriptors:
  - key: a
    rate_limit: {limits: "2/second, 5/hour"}
`

// Fault 102: several limits in one rule.
func TestLimits(t *testing.T) {
	set, err := Parse("f", []byte(limitsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, plan, key, want string }{
		{"api", "", "k", `combined "api": sliding-window "api/1s": 10 per second; sliding-window "api/1m": 500 per minute`},
		{"api", "pro", "k", `combined "api": sliding-window "api/1s": 50 per second; sliding-window "api/1m": 500 per minute`},
		{"api", "off", "k", "unlimited"},
		{"api", "", "bad", `sliding-window "api": 0 per minute`},
		{"api", "", "mine", `sliding-window "api": 1 per second`},
		{"one", "", "k", `sliding-window "one": 7 per minute`},
		{"one", "pro", "k", `sliding-window "one@pro": 70 per hour`}, // it counts differently
		{"one", "", "mine", `sliding-window "one@pro": 70 per hour`},
		{"bucket", "", "k", `token-bucket "bucket": 20, refilling 10 per second (dry run)`},
	} {
		rule := set.For(c.name, c.key)
		if c.plan != "" {
			rule = set.ForPlan(c.name, c.plan, c.key)
		}
		if got := rule.String(); got != c.want && !strings.HasPrefix(got, strings.Replace(c.want, `"api"`, `"api@key-`, 1)[:20]) {
			t.Errorf("%+v: %s", c, got)
		}
	}
	d := set.Descriptor("d", []Entry{{Key: "a", Value: "x"}})
	if d == nil || d.Rule.Parts() == nil || d.Rule.Parts()[0].Name() != "d@a/1s" {
		t.Errorf("%+v", d)
	}
	again, problems := parse("f", []byte(limitsFile+"\n"), set, nil)
	if problems != nil || again.For("api", "k") != set.For("api", "k") {
		t.Errorf("a reload makes another rule: %v", problems)
	}
	denied := func(r *limit.Rule) error {
		if r.Parts() != nil {
			return limit.ErrUnsupported
		}
		return nil
	}
	if _, err := (Options{Check: denied}).Parse("f", []byte(limitsFile)); err == nil || !strings.Contains(err.Error(), "rules.api") {
		t.Errorf("a limiter without them: %v", err)
	}
}

// Fault 102: several limits in one rule.
func TestLimitsThatAreWrong(t *testing.T) {
	for text, says := range map[string]string{
		`rules: {a: {limits: "10/s, x/m"}}`:                                                              `rules.a.limits: "x/m" is no limit such as 10/s`,
		`rules: {a: {limits: ""}}`:                                                                       "rules.a.limits: must not be empty",
		`rules: {a: {limits: [10/s]}}`:                                                                   "rules.a.limits: must be text",
		`rules: {a: {limits: 10/s, per: 1s}}`:                                                            "rules.a.per: must not be given beside limits",
		`rules: {a: {limits: 10/s, algorithm: gcra}}`:                                                    "rules.a.algorithm: must not be given beside limits",
		`{rules: {a: {limits: 10/s}}, plans: {p: {a: {limit: 5}}}}`:                                      "plans.p.a.limit: the rule has limits",
		`{rules: {a: {algorithm: gcra, limit: 1, per: 1s}}, plans: {p: {a: {limits: 5/s}}}}`:             "plans.p.a.limits: the rule has a limit and a period",
		`{domain: d, descriptors: [{key: a, rate_limit: {limits: 1/s, unit: day}}]}`:                     "unit: must not be given beside limits",
		`{domain: d, descriptors: [{key: a, rate_limit: {limits: 1/s, unlimited: true}}]}`:               "limits: must not be given when it is unlimited",
		`rules: {a: {limits: "1/s, 2/m"}, a/1m: {limits: 5/m}}`:                                          "rules.a/1m: one of the limits of a has this name",
		`{rules: {a/1h: {limits: 5/h}, a: {limits: "1/s, 2/m"}}, plans: {p: {a: {limits: "1/s, 9/h"}}}}`: "rules.a/1h: one of the limits of a has this name",
		`{domain: d, descriptors: [{key: a, rate_limit: {limits: soon}}]}`:                               `"soon" is no limit`,
	} {
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s\n%v, want %s", text, err, says)
		}
	}
}
