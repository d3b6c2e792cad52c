package adminlimit_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// exactFile is a rules file whose rules are exact.
type exactFile struct{ file }

func (*exactFile) Names() []string { return []string{"logins", "payouts"} }
func (*exactFile) Lookup(name, _, _ string) (*limit.Rule, string) {
	if name == "payouts" {
		return limit.Must(limit.Parse("payouts", "1/h, 9/d")).Exact(), ""
	}
	return five.Exact(), ""
}

// The page says which rules are exact, and how often Redis was asked and has not decided. The file knows
// better than the limiter, which remembers the rule from before a reload.
func TestExact(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	plain, byFile := serve(t, h.Limiter, adminlimit.Options{}), serve(t, h.Limiter, adminlimit.Options{Rules: new(exactFile)})
	h.Limiter.Allow("alice", five)
	for _, rule := range []*limit.Rule{limit.Must(limit.PerHour("codes", 5)).Exact(), limit.Must(limit.Parse("payouts", "1/h, 9/d")).Exact()} {
		if res, err := h.Limiter.TakeExact(t.Context(), limit.Check{Key: "alice", Rule: rule}); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}
	exact := func(s served) map[string]bool {
		var v struct {
			Rules []struct {
				Name  string
				Exact bool
			}
		}
		if err := json.Unmarshal([]byte(s.get(t, "/limits/rules.json")), &v); err != nil {
			t.Fatal(err)
		}
		is := map[string]bool{}
		for _, r := range v.Rules {
			is[r.Name] = r.Exact
		}
		return is
	}
	if got, want := exact(plain), map[string]bool{"logins": false, "codes": true, "payouts/1h": false, "payouts/1d": false}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := exact(byFile), map[string]bool{"logins": true, "codes": true, "payouts/1h": true, "payouts/1d": true}; !maps.Equal(got, want) {
		t.Errorf("by a file: %v, want %v", got, want)
	}
	contains(t, plain.get(t, "/limits/"), "<dt>Exact checks asked / failed</dt><dd>2 / 0</dd>", "(exact)</td><td>yes</td>")
}
