package check

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/rls"
	"github.com/hybridlimit/hybridlimit/limit"
)

const namedRules = `
rules:
  api: {algorithm: token-bucket, limit: 60, per: 1m, burst: 3}
  log: {algorithm: sliding-window, limit: 3, per: 1m, dry_run: true}
  open: {algorithm: token-bucket, limit: 1, per: 1m, unlimited: true}
plans:
  pro:
    api: {burst: 10}
overrides:
  - {key: acme, plan: pro}
  - {key: mallory, blocked: true}
`

// What a rule admits is what it admits: by the plan and the overrides of the key, and once.
func TestNamedRules(t *testing.T) {
	h := serveRules(t, namedRules, rls.Options{})
	for _, c := range []struct {
		body        string
		code        int
		retry, says string
	}{
		{`{"rule":"api","key":"alice"}`, 200, "", `"remaining":2,`},
		{`{"rule":"api","key":"alice","n":0}`, 200, "", `"remaining":2,`},
		{`{"rule":"api","key":"alice","n":2}`, 200, "", `"remaining":0,`},
		{`{"rule":"api","key":"alice","n":0}`, 429, "1", `"remaining":0,`},
		{`{"rule":"api","key":"alice","n":3}`, 429, "3", `"retry_after_seconds":3,`},
		{`{"rule":"api","key":"alice","n":9007199254740992}`, 429, "", `"retry_after_seconds":null,`},
		{`{"rule":"api","key":"eve","charge":1}`, 200, "", `"allowed":true,"would_refuse":false,"limit":3,"remaining":2,`},
		{`{"rule":"api","key":"eve","charge":9}`, 200, "", `"allowed":false,"would_refuse":false,"limit":3,"remaining":0,"retry_after_seconds":4,`},
		{`{"rule":"api","key":"eve"}`, 429, "4", `"remaining":0,`},
		{`{"rule":"api","key":"eve","charge":-100}`, 200, "", `"remaining":3,`},
		{`{"rule":"open","key":"bob","charge":5}`, 200, "", `"limit":-1,"remaining":-1,`},
		{`{"rule":"api","key":"bob","charge":1,"n":1}`, 400, "", "either n or charge can be given"},
		{`{"rule":"api","key":"bob","charge":0.5}`, 400, "", "charge must be an integer from -9007199254740992 to 9007199254740992"},
		{`{"rule":"none","key":"bob","charge":1}`, 404, "", `no rule`},
		{`{"n":1e1,"key":"acme","rule":"api"}`, 200, "", `"limit":10,"remaining":0,`},
		{`{"rule":"api","key":"mallory"}`, 429, "", `"limit":0,`},
		{`{"rule":"open","key":"bob","n":1000}`, 200, "", `"limit":-1,"remaining":-1,`},
		{`{"rule":"log","key":"bob","n":4}`, 200, "", `"would_refuse":true,"limit":3,"remaining":3,`},
		{`{"rule":"api","key":""}`, 400, "", "the key is empty"},
		{`{"rule":"","key":"bob"}`, 404, "", `no rule \"\"`},
		{`{"rule":"` + strings.Repeat("x", 10_000) + `","key":"bob"}`, 404, "", `x…"`},
		{`{"rule":"api","key":"bob","rule":"api"}`, 400, "", `"detail":"`},
		{`{"rule":"api","key":"` + "\xff" + `"}`, 400, "", "invalid UTF-8"},
		{`{"rule":"api","key":"\ud800"}`, 400, "", `"detail":"`},
		{`{"rule":"api","key":"bob"}{}`, 400, "", `"detail":"`},
		{`{"rule":"api"}`, 400, "", "key is missing"},
		{`{"rule":"api","key":"bob","n":9007199254740994}`, 400, "", "n must be an integer from 0 to 9007199254740992"},
		{`{"rule":"api","key":"bob","` + strings.Repeat("x", 10_000) + `":1}`, 400, "", "x…; the fields are rule, key, n, charge"},
		{`{"key":"bob"}`, 400, "", "the fields are rule, key, n, charge; or domain"},
	} {
		w := ask(h, post(c.body))
		if w.Code != c.code || w.Header().Get("Retry-After") != c.retry || !strings.Contains(w.Body.String(), c.says) || w.Body.Len() > 1<<10 {
			t.Errorf("%.200s: %d, again in %q s\n%s, want %d, %q and %s", c.body, w.Code, w.Header().Get("Retry-After"), w.Body, c.code, c.retry, c.says)
		}
	}
	// Nothing that was refused or wrong has counted, and no other rule is told.
	w := ask(h, post(`{"rule":"api","key":"bob"}`))
	if !strings.Contains(w.Body.String(), `"remaining":2,`) {
		t.Errorf("bob: %s", w.Body)
	}
	if w := ask(h, post(`{"rule":"apj","key":"bob"}`)); strings.Contains(w.Body.String(), "open") {
		t.Errorf("the names of rules are told: %s", w.Body)
	}
}

// The answer is a limit.Result that a program in Go can read. With Shadow all are admitted.
func TestNamedShadow(t *testing.T) {
	h := serveRules(t, namedRules, rls.Options{Shadow: true})
	var res limit.Result
	for range 4 {
		w := ask(h, post(`{"rule":"api","key":"alice"}`))
		if err := json.Unmarshal(w.Body.Bytes(), &res); err != nil || w.Code != 200 || !res.Allowed || w.Header().Get("Retry-After") != "" {
			t.Errorf("%d %v %s, %v", w.Code, w.Header(), w.Body, err)
		}
	}
	if !res.WouldRefuse || res.Remaining != 0 || res.RetryAfter <= 0 {
		t.Errorf("the fourth of three: %+v", res)
	}
}

func TestNamedWithoutAnAlgorithm(t *testing.T) {
	h := serveRules(t, "rules: {log: {algorithm: sliding-log, limit: 3, per: 1m}}", rls.Options{})
	if w := ask(h, post(`{"rule":"log","key":"bob"}`)); w.Code != 200 { // package local has it
		t.Errorf("%d %s", w.Code, w.Body)
	}
	h = serveRules(t, namedRules, rls.Options{Limiter: invalid{}})
	if w := ask(h, post(`{"rule":"api","key":"bob"}`)); w.Code != 500 || !strings.Contains(w.Body.String(), "cannot decide") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(Handler(broken{}, 1<<10), post(`{"rule":"api","key":"bob"}`)); w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// invalid is a limiter that has no algorithm.
type invalid struct{ rls.Limiter }

func (invalid) Take(string, *limit.Rule, int64) limit.Result {
	return limit.Result{RetryAfter: limit.Never, Source: limit.SourceInvalid}
}

// The keys that are looked at are fetched from the other servers, those that are taken are not: the
// limiter does so by itself.
func TestNamedLooksAreTold(t *testing.T) {
	var told []string
	h := serveRules(t, namedRules, rls.Options{Look: func(key string, rule *limit.Rule) { told = append(told, rule.Name()+" "+key) }})
	for _, body := range []string{`{"rule":"api","key":"a"}`, `{"rule":"api","key":"b","n":0}`, `{"rule":"open","key":"c","n":0}`, `{"rule":"none","key":"d","n":0}`} {
		ask(h, post(body))
	}
	if want := []string{"api b"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}
