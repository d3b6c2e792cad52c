package httplimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/remote"
)

func TestRefusal(t *testing.T) {
	lim, c := newLimiter(t)
	s := server(t, protect(t, lim, Options{Clock: c}, nil, Limit{Rule: perMinute("api", 2), Key: By(byKey)}))
	const policy = `RateLimit-Policy: "api";q=2;w=60`
	get(t, s, "/", "Key: alice").want(t, 200, policy, `RateLimit: "api";r=1;t=60`, "Retry-After: ")
	c.Advance(1500 * time.Millisecond)
	get(t, s, "/", "Key: alice").want(t, 200, policy, `RateLimit: "api";r=0;t=59`, "Retry-After: ")
	a := get(t, s, "/", "Key: alice")
	a.want(t, 429, policy, `RateLimit: "api";r=0;t=59`, "Retry-After: 59", "Content-Type: application/problem+json")
	var p struct {
		Type, Title string
		Status      int
		Violated    []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Status != 429 || p.Title == "" || fmt.Sprint(p.Violated) != "[api]" ||
		p.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" {
		t.Errorf("%s: %v", a.body, err)
	}
	a = send(t, s, http.MethodHead, "/", "Key: alice")
	if a.want(t, 429, "Retry-After: 59"); a.body != "" {
		t.Errorf("HEAD got %q", a.body)
	}
	get(t, s, "/", "Key: bob").want(t, 200)
}

// Fault 59: a client that waits for exactly as long as it is told is served, if it is alone,
// and is told no more than a second too much.
func TestRetryAfterIsEnough(t *testing.T) {
	for seed := range int64(60) {
		n, per := 1+seed*7%9, time.Duration(1+seed*977%4000)*time.Millisecond
		rules := []*limit.Rule{
			limit.Must(limit.TokenBucket("r", 1+seed%3, per, n)),
			limit.Must(limit.SlidingWindow("r", n, per)),
			limit.Must(limit.FixedWindow("r", n, per)),
			limit.Must(limit.SlidingLog("r", n, per)),
		}
		rule := rules[seed%4]
		lim, c := newLimiter(t)
		h := protect(t, lim, Options{Clock: c}, nil, Limit{Rule: rule, Key: By(byKey)})
		ask := func() *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Key", "k")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		for range 5 {
			var w *httptest.ResponseRecorder
			for w = ask(); w.Code == 200; w = ask() { // a limit that lets all pass would never end: it fails on the time limit
				c.Advance(per / 1000)
			}
			exact := lim.Peek("k", rule).RetryAfter
			s, err := strconv.Atoi(w.Header().Get("Retry-After"))
			told := time.Duration(s) * time.Second
			if err != nil || s < 1 || told < exact || told >= exact+time.Second {
				t.Fatalf("%v: Retry-After %q, %v is exact", rule, w.Header().Get("Retry-After"), exact)
			}
			if c.Advance(told); ask().Code != 200 {
				t.Fatalf("%v: refused after %v", rule, told)
			}
		}
	}
}

// What RateLimit says holds: what is left is admitted, and when nothing is left, the next
// unit comes back no later than t says.
func TestRateLimitFieldHolds(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.TokenBucket("r", 5, time.Second, 20)),
		limit.Must(limit.TokenBucket("r", 1, 7*time.Second, 3)),
		limit.Must(limit.SlidingWindow("r", 20, 10*time.Second)),
		limit.Must(limit.FixedWindow("r", 7, 3*time.Second)),
	} {
		lim, c := newLimiter(t)
		h := protect(t, lim, Options{Clock: c}, nil, Limit{Rule: rule, Key: By(byKey)})
		for step := range 300 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Key", "k")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			left, window, ok := upstreamLeft(w.Header(), c.Now())
			if !ok || left != lim.Peek("k", rule).Remaining {
				t.Fatalf("%v, step %d: %v", rule, step, w.Header())
			}
			if per := float64(arith.Of(rule).Units) / rule.Period().Seconds(); arith.Of(rule).Algorithm == arith.TokenBucket && float64(left) > per*window.Seconds() {
				t.Errorf("%v: %d in %v is more than the rule allows in the long run", rule, left, window)
			}
			if c.Advance(time.Duration(step%9) * 37 * time.Millisecond); left == 0 {
				if c.Advance(window); !lim.Peek("k", rule).Allowed {
					t.Fatalf("%v, step %d: nothing after %v", rule, step, window)
				}
			}
		}
	}
}

func TestRequestThatCanNeverPass(t *testing.T) {
	lim, _ := newLimiter(t)
	s := server(t, protect(t, lim, Options{}, nil, Limit{
		Rule: limit.Must(limit.TokenBucket("mb", 10, time.Minute, 10)), Key: By(byKey), Cost: func(*http.Request) int64 { return 11 },
	}))
	get(t, s, "/", "Key: k").want(t, 429, "Retry-After: ", `RateLimit: "mb";r=10;t=60`)
}

func TestSeveralLimits(t *testing.T) {
	lim, _ := newLimiter(t)
	user, tenant := perMinute("user", 5), perMinute("tenant", 3)
	var seen []Decision
	s := server(t, protect(t, lim, Options{OnDecision: func(_ *http.Request, d Decision) { seen = append(seen, d) }}, nil,
		Limit{Rule: user, Key: By(byKey)},
		Limit{Rule: tenant, Key: ByHeader("Tenant"), Policy: `all "of" you`}))
	for range 3 {
		get(t, s, "/", "Key: u", "Tenant: t").want(t, 200)
	}
	a := get(t, s, "/", "Key: u", "Tenant: t")
	a.want(t, 429, `RateLimit: "all \"of\" you";r=0;t=60`, `RateLimit-Policy: "user";q=5;w=60, "all \"of\" you";q=3;w=60`)
	if !strings.Contains(a.body, `"violated-policies":["all \"of\" you"]`) {
		t.Errorf("%s", a.body)
	}
	if left := lim.Peek("u", user).Remaining; left != 2 {
		t.Errorf("%d of 5 left after 3: a refused request was charged", left)
	}
	if d := seen[3]; len(seen) != 4 || d.Allowed || d.By != 1 || d.Rule != tenant || d.Checks[1].Key != "t" || d.Policy != `all "of" you` || d.Err != nil {
		t.Errorf("%d decisions, %+v", len(seen), d)
	}
}

func TestPlans(t *testing.T) {
	lim, _ := newLimiter(t)
	plans := map[string]*limit.Rule{"free": perMinute("calls", 1), "pro": perMinute("calls", 3), "staff": limit.Unlimited(), "é": perMinute("é", 1)}
	s := server(t, protect(t, lim, Options{}, nil,
		Limit{RuleFor: func(r *http.Request) *limit.Rule { return plans[r.Header.Get("Plan")] }, Key: By(byKey)},
		Limit{Rule: perMinute("all", 100), Key: func(*http.Request) (string, error) { return "all", nil }}))
	get(t, s, "/", "Key: k", "Plan: free").want(t, 200, `RateLimit-Policy: "calls";q=1;w=60, "all";q=100;w=60`)
	get(t, s, "/", "Key: k", "Plan: free").want(t, 429)
	get(t, s, "/", "Key: k", "Plan: pro").want(t, 200, `RateLimit: "calls";r=1;t=60`, `RateLimit-Policy: "calls";q=3;w=60, "all";q=100;w=60`)
	get(t, s, "/", "Key: k", "Plan: é").want(t, 200, `RateLimit: "%c3%a9";r=0;t=60`)
	get(t, s, "/", "Plan: staff").want(t, 200, `RateLimit: "all";r=96;t=60`, `RateLimit-Policy: "all";q=100;w=60`) // its key is not asked for
	get(t, s, "/", "Key: k", "Plan: gold").want(t, 500, "RateLimit: ")                                             // a plan that nobody knows
	only := server(t, protect(t, lim, Options{}, nil, Limit{RuleFor: func(*http.Request) *limit.Rule { return limit.Unlimited() }, Key: By(byKey)}))
	get(t, only, "/").want(t, 200, "RateLimit: ", "RateLimit-Policy: ")
}

func TestCost(t *testing.T) {
	lim, _ := newLimiter(t)
	rule := perMinute("mb", 10)
	s := server(t, protect(t, lim, Options{}, nil, Limit{Rule: rule, Key: By(byKey), Cost: func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.Header.Get("Size"), 10, 64)
		return n
	}}))
	get(t, s, "/", "Key: k", "Size: 4").want(t, 200, `RateLimit: "mb";r=6;t=60`)
	get(t, s, "/", "Key: k", "Size: 7").want(t, 429, `RateLimit: "mb";r=6;t=60`, "Retry-After: 60")
	get(t, s, "/", "Key: k", "Size: 0").want(t, 200, `RateLimit: "mb";r=5;t=60`)
	get(t, s, "/", "Key: k", "Size: -1").want(t, 500, "RateLimit: ")
	get(t, s, "/", "Key: k", "Size: -9223372036854775808").want(t, 500)
	if left := lim.Peek("k", rule).Remaining; left != 5 {
		t.Errorf("%d left", left)
	}
}

func TestRefund(t *testing.T) {
	lim, _ := newLimiter(t)
	user, dry := perMinute("user", 10), perMinute("dry", 1).DryRun()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status, _ := strconv.Atoi(r.URL.Path[1:]); status {
		case 0:
		case 1:
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(status)
		}
	})
	s := server(t, protect(t, lim, Options{RefundOn: func(status int) bool { return status == 304 || status >= 500 }}, h,
		Limit{Rule: user, Key: By(byKey), Cost: func(*http.Request) int64 { return 2 }}, Limit{Rule: dry, Key: By(byKey)}))
	left := int64(10)
	for _, step := range []struct {
		path string
		cost int64
	}{{"/304", 0}, {"/500", 0}, {"/0", 2}, {"/404", 2}, {"/503", 0}, {"/200", 2}, {"/1", 0}} {
		r, _ := http.NewRequest(http.MethodGet, s.URL+step.path, nil)
		r.Header.Set("Key", "k")
		if resp, err := s.Client().Do(r); err == nil {
			resp.Body.Close()
		} else if step.path != "/1" {
			t.Fatal(err)
		}
		left -= step.cost
		until(t, func() bool { return lim.Peek("k", user).Remaining == left }, func() string {
			return fmt.Sprintf("after %s %d left, want %d", step.path, lim.Peek("k", user).Remaining, left)
		})
	}
	if res := lim.Peek("k", dry); res.Remaining != 0 {
		t.Errorf("what a dry run would have refused was handed back: %+v", res)
	}
}

// until waits for what happens on the server after the client has its answer.
func until(t *testing.T, ok func() bool, otherwise func() string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise())
		}
	}
}

// A client hears nothing of a dry run, and beside a limit it changes nothing of what the client hears of
// that limit, whichever of them has less left.
func TestDryRunBesideALimit(t *testing.T) {
	lim, c := newLimiter(t)
	real, other, key := perMinute("user", 4), perMinute("other", 9), By(byKey)
	limits := []Limit{{Rule: perMinute("new", 1).DryRun(), Key: key}, {Rule: other, Key: key}, {Rule: real, Key: key}}
	s := server(t, protect(t, lim, Options{}, nil, limits...))
	x := server(t, protect(t, lim, Options{Headers: XRateLimitHeaders, Clock: c}, nil, limits...))
	would := false // the second time
	note := func(_ *http.Request, d Decision) { would = d.WouldRefuse }
	only := server(t, protect(t, lim, Options{OnDecision: note}, nil, limits[0]))
	for range 2 {
		get(t, only, "/", "Key: alone").want(t, 200, "RateLimit: ", "RateLimit-Policy: ", "Retry-After: ")
	}
	if !would {
		t.Error("it would have been refused")
	}
	const policy = `RateLimit-Policy: "other";q=9;w=60, "user";q=4;w=60`
	get(t, s, "/", "Key: k").want(t, 200, policy, `RateLimit: "user";r=3;t=60`, "Retry-After: ")
	get(t, s, "/", "Key: k").want(t, 200, policy, `RateLimit: "user";r=2;t=60`, "Retry-After: ")
	get(t, x, "/", "Key: k").want(t, 200, "X-RateLimit-Limit: 4", "X-RateLimit-Remaining: 1", fmt.Sprint("X-RateLimit-Reset: ", noon.Unix()+60))
	get(t, s, "/", "Key: k").want(t, 200, policy, `RateLimit: "user";r=0;t=60`, "Retry-After: ")
	get(t, s, "/", "Key: k").want(t, 429, policy, `RateLimit: "user";r=0;t=60`, "Retry-After: 60")
}

func TestDegraded(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiter: hybrid.Options{Fallback: hybrid.FailClosed}})
	s := server(t, protect(t, h.Limiter, Options{Clock: h.Clock}, nil, Limit{Rule: perMinute("api", 2), Key: By(byKey)}))
	get(t, s, "/", "Key: k").want(t, 200)
	h.CutOff()
	if a := get(t, s, "/", "Key: k"); !strings.Contains(a.body, "http-problem-types#temporary-reduced-capacity") {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	h.Heal()
	get(t, s, "/", "Key: k").want(t, 200)
	if a := get(t, s, "/", "Key: k"); !strings.Contains(a.body, "#quota-exceeded") {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

func TestXRateLimitHeaders(t *testing.T) {
	lim, c := newLimiter(t)
	s := server(t, protect(t, lim, Options{Headers: XRateLimitHeaders, Clock: c}, nil, Limit{Rule: perMinute("é", 1), Key: By(byKey)}))
	reset := fmt.Sprint("X-RateLimit-Reset: ", noon.Unix()+60)
	get(t, s, "/", "Key: k").want(t, 200, "X-RateLimit-Limit: 1", "X-RateLimit-Remaining: 0", reset, "RateLimit: ")
	get(t, s, "/", "Key: k").want(t, 429, "X-RateLimit-Limit: 1", "X-RateLimit-Remaining: 0", reset, "Retry-After: 60")
	none := server(t, protect(t, lim, Options{Headers: NoHeaders}, nil, Limit{Rule: perMinute("é", 1), Key: By(byKey)}))
	get(t, none, "/", "Key: k").want(t, 429, "X-RateLimit-Limit: ", "RateLimit: ", "RateLimit-Policy: ", "Retry-After: 60")
}

// Two middlewares around one handler: the fields of both are one list.
func TestNestedMiddlewares(t *testing.T) {
	lim, _ := newLimiter(t)
	inner := protect(t, lim, Options{}, nil, Limit{Rule: perMinute("inner", 1), Key: By(byKey)})
	s := server(t, protect(t, lim, Options{}, inner, Limit{Rule: perMinute("outer", 5), Key: By(byKey)}))
	get(t, s, "/", "Key: k").want(t, 200, `RateLimit: "outer";r=4;t=60, "inner";r=0;t=60`)
	get(t, s, "/", "Key: k").want(t, 429, `RateLimit-Policy: "outer";q=5;w=60, "inner";q=1;w=60`)
}

func TestOwnAnswers(t *testing.T) {
	lim, _ := newLimiter(t)
	s := server(t, protect(t, lim, Options{
		Refused: func(w http.ResponseWriter, _ *http.Request, d Decision) {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, d.Rule.Name())
		},
		OnError: func(w http.ResponseWriter, r *http.Request, next http.Handler, err error) {
			if errors.Is(err, ErrNoKey) {
				next.ServeHTTP(w, r) // on purpose
			}
		},
	}, nil, Limit{Rule: perMinute("api", 1), Key: By(byKey)}))
	get(t, s, "/", "Key: k").want(t, 200)
	a := get(t, s, "/", "Key: k")
	if a.want(t, 503, "Retry-After: 60"); a.body != "api" {
		t.Errorf("%s", a.body)
	}
	if a = get(t, s, "/"); a.body != "served" {
		t.Errorf("without a key: %s", a.body)
	}
}

// slow is a limiter that is asked again when the next unit has come back.
type slow struct {
	*local.Limiter
	clock *clock.Manual
}

func (s slow) Peek(key string, rule *limit.Rule) limit.Result {
	s.clock.Advance(time.Hour)
	return s.Limiter.Peek(key, rule)
}

// A client who has used the last unit is not told to wait for the whole bucket.
func TestUnitComesBackMeanwhile(t *testing.T) {
	lim, c := newLimiter(t)
	rule := limit.Must(limit.TokenBucket("api", 1, time.Hour, 3))
	h := protect(t, slow{lim, c}, Options{}, nil, Limit{Rule: rule, Key: By(byKey), Cost: func(*http.Request) int64 { return 3 }})
	get(t, server(t, h), "/", "Key: k").want(t, 200, `RateLimit: "api";r=0;t=1`)
}

// Fault 60: names that the fields cannot carry are rejected, with all else that is wrong.
func TestNewErrors(t *testing.T) {
	lim, _ := newLimiter(t)
	rule, key := perMinute("r", 1), By(byKey)
	for name, limits := range map[string][]Limit{
		"no limits": nil, "no rule": {{Key: key}}, "zero rule": {{Key: key, Rule: new(limit.Rule)}}, "unlimited": {{Key: key, Rule: limit.Unlimited()}},
		"no key": {{Rule: rule}}, "key of no function": {{Rule: rule, Key: By(nil)}}, "key of no header": {{Rule: rule, Key: ByHeader("no header")}},
		"key of nothing": {{Rule: rule, Key: Join()}}, "key of a part that is nil": {{Rule: rule, Key: Join(key, nil)}},
		"two rules": {{Rule: rule, Key: key, RuleFor: func(*http.Request) *limit.Rule { return rule }}},
		"a name":    {{Rule: perMinute("é", 1), Key: key}}, "a policy": {{Rule: rule, Key: key, Policy: "\n"}}, "second": {{Rule: rule, Key: key}, {}},
	} {
		if m, err := NewAll(limit.WithContext(lim), Options{}, limits...); err == nil || m != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, none := range []limit.ContextLimiter{
		nil, (*remote.Limiter)(nil), limit.WithContext(nil),
		limit.WithContext((*hybrid.Limiter)(nil)), limit.WithContext((*local.Limiter)(nil)),
	} { // as of a New that failed
		if _, err := New(none, rule, key, Options{}); err == nil || !strings.Contains(err.Error(), "limiter is nil") {
			t.Errorf("%T: %v", none, err)
		}
	}
	if _, err := New(limit.WithContext(lim), rule, key, Options{Headers: 3}); err == nil {
		t.Error("no such headers")
	}
	if _, err := New(limit.WithContext(lim), nil, nil, Options{}); err == nil || !errors.Is(err, limit.ErrNilRule) || !strings.Contains(err.Error(), "key function") {
		t.Errorf("not all that is wrong: %v", err)
	}
	if _, err := New(limit.WithContext(lim), perMinute("é", 1), key, Options{Headers: NoHeaders}); err != nil {
		t.Errorf("nobody is told the name: %v", err)
	}
}
