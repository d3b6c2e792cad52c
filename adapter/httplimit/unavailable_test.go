package httplimit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// failOpen lets pass what docs/http.md says.
func failOpen(w http.ResponseWriter, r *http.Request, next http.Handler, err error) {
	if errors.Is(err, ErrUnavailable) {
		next.ServeHTTP(w, r)
		return
	}
	answerError(w, r, next, err)
}

// faulty is a limiter whose calls fail as they are told, and which remembers the last context.
type faulty struct {
	limit.ContextLimiter
	take, all, peek, refund error
	ctx                     context.Context
}

func (f *faulty) Take(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	if f.ctx = ctx; f.take != nil {
		return limit.Result{}, f.take
	}
	return f.ContextLimiter.Take(ctx, key, rule, n)
}

func (f *faulty) TakeAll(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	if f.ctx = ctx; f.all != nil {
		return limit.AllResult{By: -1}, f.all
	}
	return f.ContextLimiter.TakeAll(ctx, checks...)
}

func (f *faulty) Peek(ctx context.Context, key string, rule *limit.Rule) (limit.Result, error) {
	if f.ctx = ctx; f.peek != nil {
		return limit.Result{}, f.peek
	}
	return f.ContextLimiter.Peek(ctx, key, rule)
}

func (f *faulty) Refund(ctx context.Context, key string, rule *limit.Rule, n int64) (int64, error) {
	if f.ctx = ctx; f.refund != nil {
		return 0, f.refund
	}
	return f.ContextLimiter.Refund(ctx, key, rule, n)
}

func (f *faulty) WaitN(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	if f.take != nil {
		return f.take
	}
	return f.ContextLimiter.WaitN(ctx, key, rule, n)
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	lim, _ := newLimiter(t)
	return &faulty{ContextLimiter: limit.WithContext(lim)}
}

var errAway = errors.New("redis is away")

// Which status an error of the limiter gets, whether it is in the log, and whether it is
// ErrUnavailable, which a service may let pass.
func TestErrorsOfTheLimiter(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		end    func(context.Context) (context.Context, context.CancelFunc)
		status int
		lines  int
		open   bool
	}{
		{"away", errAway, context.WithCancel, 503, 1, true},
		{"away from a limiter of hybrid", &hybrid.UnavailableError{Reason: "timeout"}, context.WithCancel, 503, 1, true},
		{"closed", limit.ErrClosed, context.WithCancel, 503, 1, false},
		{"a time-out of its own", context.DeadlineExceeded, context.WithCancel, 503, 1, true},
		{"the client has gone", errAway, canceled, 503, 0, false},
		{"the client has gone, as it says", context.Canceled, canceled, 503, 0, false},
		{"the time of the request is over", context.DeadlineExceeded, expired, 503, 1, false},
		{"no rule", limit.ErrNilRule, context.WithCancel, 500, 1, false},
		{"a negative number", limit.ErrInvalidN, context.WithCancel, 500, 1, false},
		{"a broken key", &limit.KeyError{Key: "hl:k", Reason: "WRONGTYPE"}, context.WithCancel, 500, 1, false},
		{"no such rule", limit.ErrUnsupported, context.WithCancel, 500, 1, false},
		{"no such rule, and the client has gone", limit.ErrUnsupported, canceled, 500, 1, false},
	} {
		for _, limits := range [][]Limit{
			{{Rule: perMinute("r", 5), Key: By(byKey)}},
			{{Rule: perMinute("r", 5), Key: By(byKey)}, {Rule: perMinute("s", 5), Key: By(byKey)}},
		} {
			lim := newFaulty(t)
			lim.take, lim.all = c.err, c.err
			var text bytes.Buffer
			var heard error
			logger := slog.New(slog.NewTextHandler(&text, nil))
			h := protectBy(t, lim, Options{Logger: logger, OnDecision: func(_ *http.Request, d Decision) { heard = d.Err }}, nil, limits...)
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Key", "k")
			ctx, cancel := c.end(r.Context())
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.WithContext(ctx))
			if w.Code != c.status || strings.Count(text.String(), "\n") != c.lines || lim.ctx != ctx {
				t.Errorf("%s: status %d, log %q", c.name, w.Code, text.String())
			}
			if c.lines > 0 && !strings.Contains(text.String(), "level=ERROR") {
				t.Errorf("%s: log %q", c.name, text.String())
			}
			if errors.Is(heard, ErrUnavailable) != c.open || c.open && !errors.Is(heard, c.err) || !c.open && c.status == 503 && !errors.Is(heard, cmp.Or(ctx.Err(), c.err)) {
				t.Errorf("%s: %v", c.name, heard)
			}
			w = httptest.NewRecorder()
			protectBy(t, lim, Options{OnError: failOpen, Logger: slog.New(slog.DiscardHandler)}, nil, limits...).ServeHTTP(w, r.WithContext(ctx))
			if (w.Code == 200) != c.open {
				t.Errorf("%s, failing open: status %d", c.name, w.Code)
			}
			for i := range limits {
				limits[i].Rule = limits[i].Rule.DryRun()
			}
			w = httptest.NewRecorder()
			protectBy(t, lim, Options{Logger: slog.New(slog.DiscardHandler)}, nil, limits...).ServeHTTP(w, r.WithContext(ctx))
			if (w.Code == 200) != (c.status == 503) {
				t.Errorf("%s, in a dry run: status %d", c.name, w.Code)
			}
			cancel()
		}
	}
}

func canceled(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

func expired(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Unix(0, 0))
}

// What cannot be looked up is left out of the fields; the request is served.
func TestPeekFails(t *testing.T) {
	lim, key := newFaulty(t), By(byKey)
	lim.peek = errAway
	last := server(t, protectBy(t, lim, Options{}, nil, Limit{Rule: perMinute("r", 1), Key: key}))
	get(t, last, "/", "Key: k").want(t, 200, `RateLimit: "r";r=0`, `RateLimit-Policy: "r";q=1;w=60`)
	get(t, last, "/", "Key: k").want(t, 429, `RateLimit: "r";r=0;t=60`, "Retry-After: 60") // asks nothing more
	beside := []Limit{{Rule: perMinute("new", 1).DryRun(), Key: key}, {Rule: perMinute("user", 4), Key: key}}
	dry := server(t, protectBy(t, lim, Options{}, nil, beside...))
	get(t, dry, "/", "Key: k").want(t, 200, "RateLimit: ", `RateLimit-Policy: "user";q=4;w=60`)
	x := server(t, protectBy(t, lim, Options{Headers: XRateLimitHeaders}, nil, beside...))
	get(t, x, "/", "Key: k").want(t, 200, "X-RateLimit-Limit: ", "X-RateLimit-Remaining: ")
}

// Units are handed back although the client has gone. If that fails, it is in the log.
func TestRefundAfterTheClientHasGone(t *testing.T) {
	lim := newFaulty(t)
	rule := perMinute("r", 5)
	type id struct{}
	serve := func(logger *slog.Logger) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), id{}, "of the request"))
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.Header.Set("Key", "k")
		protectBy(t, lim, Options{Logger: logger, RefundOn: func(status int) bool { return status == 503 }}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			w.WriteHeader(http.StatusServiceUnavailable)
		}), Limit{Rule: rule, Key: By(byKey)}).ServeHTTP(httptest.NewRecorder(), r)
		if lim.ctx.Err() != nil || lim.ctx.Value(id{}) == nil {
			t.Errorf("a refund with %v", lim.ctx)
		}
	}
	serve(nil)
	if res, err := lim.Peek(t.Context(), "k", rule); res.Remaining != 5 || err != nil {
		t.Errorf("%+v, %v", res, err)
	}
	lim.refund = errAway
	var text bytes.Buffer
	serve(slog.New(slog.NewTextHandler(&text, nil)))
	if line := text.String(); !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "units cannot be handed back") || !strings.Contains(line, errAway.Error()) {
		t.Errorf("the log is %q", line)
	}
}

// A request to an upstream is not sent while nobody can say whether it may be. What the upstream says is
// the client's, also if it cannot be followed.
func TestTransportWithoutRedis(t *testing.T) {
	lim, sent := newFaulty(t), 0
	base := upstream(func(*http.Request) *http.Response { sent++; return says(429, "Retry-After: 7") })
	for _, noWait := range []bool{true, false} {
		var failed error
		lim.take, lim.peek, sent = nil, errAway, 0
		tr, err := NewTransport(lim, tenPerSecond, toHost, TransportOptions{
			Base: base, NoWait: noWait, OnError: func(_ *http.Request, err error) { failed = err },
		})
		if err != nil {
			t.Fatal(err)
		}
		r, _ := request(t.Context(), "http://a.example/")
		if resp, err := tr.RoundTrip(r); err != nil || resp.StatusCode != 429 || !errors.Is(failed, errAway) {
			t.Errorf("%v, and while following %v", err, failed)
		}
		lim.take = errAway
		r, body := request(t.Context(), "http://a.example/")
		if _, err := tr.RoundTrip(r); !errors.Is(err, errAway) || !body.closed.Load() || sent != 1 {
			t.Errorf("at once %t: %v, body closed %t, %d sent", noWait, err, body.closed.Load(), sent)
		}
	}
}
