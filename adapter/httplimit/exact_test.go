package httplimit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// exactly is a limiter in memory that notes what Redis would be asked, and fails as it is told.
type exactly struct {
	memory
	fail  error
	asked [][]limit.Check
	ctx   context.Context
}

func (e *exactly) TakeExact(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	v, err := e.TakeAllExact(ctx, limit.Check{Key: key, Rule: rule, N: n})
	return v.Result, err
}

func (e *exactly) TakeAllExact(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	e.asked, e.ctx = append(e.asked, append([]limit.Check(nil), checks...)), ctx
	if err := errors.Join(ctx.Err(), e.fail); err != nil {
		return limit.AllResult{Result: limit.Result{Source: limit.SourceRemote}, By: -1}, err
	}
	return e.TakeAll(checks...), nil
}

func newExactly(t *testing.T) *exactly {
	lim, _ := newLimiter(t)
	return &exactly{memory: lim, ctx: context.Background()}
}

// mark is a value of a request's context.
type mark struct{}

// An exact rule asks Redis with the context of the request, all limits of it at once if one is exact.
// OnError hears of what Redis has not decided.
func TestExact(t *testing.T) {
	exact, other := perMinute("login", 2).Exact(), perMinute("address", 3)
	several := limit.Must(limit.Parse("several", "2/m, 9/h")).Exact()
	key := By(byKey)
	for name, c := range map[string]struct {
		limits []Limit
		asked  int // checks of one call
		policy string
	}{
		"alone":      {[]Limit{{Rule: exact, Key: key}}, 1, `"login";r=1;t=60`},
		"by RuleFor": {[]Limit{{RuleFor: func(*http.Request) *limit.Rule { return exact }, Key: key}}, 1, `"login";r=1;t=60`},
		"beside":     {[]Limit{{Rule: other, Key: key}, {Rule: exact, Key: key}}, 2, `"login";r=1;t=60`},
		"several":    {[]Limit{{Rule: several, Key: key}}, 1, `"several/1m";r=1;t=60`},
		"no":         {[]Limit{{Rule: other, Key: key}}, 0, `"address";r=2;t=60`},
	} {
		lim := newExactly(t)
		var heard []error
		h := protect(t, lim, Options{OnError: func(w http.ResponseWriter, r *http.Request, next http.Handler, err error) {
			heard = append(heard, err)
			answerError(w, r, next, err)
		}}, nil, c.limits...)
		ask := func(ctx context.Context) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody)
			r.Header.Set("Key", "k")
			h.ServeHTTP(w, r)
			return w
		}
		w := ask(context.WithValue(t.Context(), mark{}, name))
		if w.Code != 200 || w.Header().Get("RateLimit") != c.policy {
			t.Errorf("%s: %d, %q", name, w.Code, w.Header())
		}
		if c.asked == 0 {
			if len(lim.asked) != 0 {
				t.Errorf("%s: asked %v", name, lim.asked)
			}
			continue
		}
		if len(lim.asked) != 1 || len(lim.asked[0]) != c.asked || lim.ctx.Value(mark{}) != name {
			t.Errorf("%s: asked %v", name, lim.asked)
		}
		ask(t.Context())
		if w := ask(t.Context()); w.Code != 429 || w.Header().Get("Retry-After") != "60" {
			t.Errorf("%s: %d", name, w.Code)
		}
		lim.fail = &hybrid.UnavailableError{Reason: "timeout"}
		if w := ask(t.Context()); w.Code != 503 || len(heard) != 1 || !errors.Is(heard[0], ErrUnavailable) || !errors.Is(heard[0], lim.fail) {
			t.Errorf("%s: %d, %v", name, w.Code, heard)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if ask(ended); len(heard) != 2 || errors.Is(heard[1], ErrUnavailable) || !errors.Is(heard[1], context.Canceled) {
			t.Errorf("%s: %v", name, heard)
		}
	}
}

// A transport that does not wait takes exactly. Waiting is for rules that are not exact.
func TestExactTransport(t *testing.T) {
	s := server(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	rule := limit.Must(limit.TokenBucket("up", limit.Tokens{Burst: 1, Refill: 1, Per: perMinute("x", 1).Period()})).Exact()
	lim := newExactly(t)
	for _, noWait := range []bool{true, false} {
		lim.asked = nil
		tr, err := NewTransport(limit.WithContext(lim), rule, By(func(r *http.Request) string { return r.URL.Path }), TransportOptions{Base: s.Client().Transport, NoWait: noWait, Ignore: true})
		if err != nil {
			t.Fatal(err)
		}
		path := s.URL + map[bool]string{true: "/at-once", false: "/waits"}[noWait]
		ask := func() error {
			r, err := http.NewRequestWithContext(context.WithValue(t.Context(), mark{}, path), http.MethodGet, path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(r)
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		}
		if err := ask(); err != nil || len(lim.asked) != map[bool]int{true: 1}[noWait] {
			t.Errorf("%v, asked %v", err, lim.asked)
		}
		if !noWait {
			continue
		}
		var refused *RefusedError
		if err := ask(); !errors.As(err, &refused) || lim.ctx.Value(mark{}) != path {
			t.Errorf("%v", err)
		}
		lim.fail = &hybrid.UnavailableError{Reason: "timeout"}
		if err := ask(); !errors.Is(err, lim.fail) {
			t.Errorf("%v", err)
		}
		lim.fail = nil
	}
}

// Two services that are asked at the same moment admit as many as the limit, and what a node knows to be
// used up costs no call of Redis. In an outage the fallback decides.
func TestExactFleet(t *testing.T) {
	f := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	account, address := perMinute("login", 10).Exact(), perMinute("address", 1000)
	var services []http.Handler
	for _, lim := range f.Limiters {
		services = append(services, protect(t, lim, Options{}, nil, Limit{Rule: address, Key: By(func(*http.Request) string { return "192.0.2.1" })}, Limit{Rule: account, Key: By(byKey)}))
	}
	ask := func(h http.Handler) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/login", http.NoBody)
		r.Header.Set("Key", "alice")
		h.ServeHTTP(w, r)
		return w.Code
	}
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		for _, h := range services {
			all.Go(func() {
				if ask(h) == 200 {
					admitted.Add(1)
				}
			})
		}
	}
	all.Wait()
	if admitted.Load() != 10 {
		t.Errorf("%d of 10 admitted", admitted.Load())
	}
	f.Sync()
	before := f.Limiter.Stats().ExactAsked
	for range 100 {
		if code := ask(services[0]); code != 429 {
			t.Fatal(code)
		}
	}
	if s := f.Limiter.Stats(); s.ExactAsked != before || s.ExactFailed != 0 {
		t.Errorf("%d calls of Redis, %d failed", s.ExactAsked-before, s.ExactFailed)
	}
	f.CutOff()
	if code := ask(services[0]); code != 429 {
		t.Errorf("in an outage: %d", code)
	}
	f.Heal()
}
