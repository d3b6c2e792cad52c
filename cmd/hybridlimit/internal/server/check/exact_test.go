package check

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/rls"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

const exactRules = `
rules:
  login: {algorithm: sliding-window, limit: 5, per: 1m, exact: true}
  api: {algorithm: sliding-window, limit: 5, per: 1m}
---
domain: d
descriptors:
  - {key: account, rate_limit: {unit: minute, requests_per_unit: 5, exact: true}}
`

// silent is a limiter whose Redis does not decide.
type silent struct {
	rls.Limiter
	asked []context.Context
}

func (s *silent) TakeExact(ctx context.Context, _ ...limit.Check) (v limit.AllResult, err error) {
	s.asked = append(s.asked, ctx)
	v.Source, v.By = limit.SourceRemote, -1
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	return v, &hybrid.UnavailableError{Reason: "timeout"}
}

// serveExact serves exact limits whose Redis does not decide.
func serveExact(t *testing.T, lim *silent, o rls.Options) http.Handler {
	t.Helper()
	o.Limiter = lim
	if lim.Limiter == nil {
		lim.Limiter = newLocal(t)
	}
	return serveRules(t, exactRules, o)
}

// What Redis does not decide is 503, in both forms, and waits no longer than the request lasts. What only
// looks, charges, or is not exact asks memory.
func TestExactUndecided(t *testing.T) {
	lim := &silent{}
	h := serveExact(t, lim, rls.Options{})
	for body, code := range map[string]int{
		`{"rule": "login", "key": "a"}`:                                                                        503,
		`{"rule": "login", "key": "a", "n": 0}`:                                                                200,
		`{"rule": "login", "key": "a", "charge": 1}`:                                                           200,
		`{"rule": "api", "key": "a"}`:                                                                          200,
		`{"domain": "d", "descriptors": [{"entries": [{"key": "account", "value": "a"}]}]}`:                    503,
		`{"domain": "d", "descriptors": [{"entries": [{"key": "account", "value": "a"}], "hitsAddend": "0"}]}`: 200,
	} {
		asked := len(lim.asked)
		ctx, cancel := context.WithCancel(t.Context())
		w := ask(h, post(body).WithContext(ctx))
		cancel()
		if w.Code != code || (code == 503) != strings.Contains(w.Body.String(), `(timeout)`) || w.Header().Get("Retry-After") != "" {
			t.Errorf("%s: %d %s, want %d", body, w.Code, w.Body, code)
		}
		if got := len(lim.asked) - asked; got != 0 != (code == 503) {
			t.Errorf("%s: Redis was asked %d times", body, got)
		} else if got > 0 && lim.asked[asked].Err() == nil {
			t.Errorf("%s: asked with another context than the request's", body)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, body := range []string{`{"rule": "login", "key": "a"}`, `{"domain": "d", "descriptors": [{"entries": [{"key": "account", "value": "a"}]}]}`} {
		if w := ask(h, post(body).WithContext(ended)); w.Code != 503 || !strings.Contains(w.Body.String(), "the request has ended") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	h = serveExact(t, lim, rls.Options{Shadow: true})
	if w := ask(h, post(`{"rule": "login", "key": "a"}`)); w.Code != 200 {
		t.Errorf("with Shadow: %d %s", w.Code, w.Body)
	}
}
