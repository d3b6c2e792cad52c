package httplimit

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

func TestByHeader(t *testing.T) {
	for _, c := range []struct {
		header http.Header
		want   string
	}{
		{http.Header{}, ""},
		{http.Header{"X-Api-Key": {""}}, ""},
		{http.Header{"X-Api-Key": {" "}}, ""},
		{http.Header{"X-Api-Key": {"a"}}, "a"},
		{http.Header{"X-Api-Key": {"a", "b"}}, "a, b"},
	} {
		key, err := ByHeader("x-api-key")(&http.Request{Header: c.header})
		if key != c.want || errors.Is(err, ErrNoKey) != (c.want == "") {
			t.Errorf("%.50q: %.50q, %v", c.header, key, err)
		}
	}
	if key, err := ByHeader("host")(&http.Request{Host: "a.example"}); key != "a.example" || err != nil {
		t.Errorf("host: %q, %v", key, err)
	}
}

// Requests without a key are refused, not counted together.
func TestNoKeyIsNoKey(t *testing.T) {
	lim, _ := newLimiter(t)
	rule := perMinute("api", 1)
	for name, key := range map[string]KeyFunc{
		"empty":     func(*http.Request) (string, error) { return "", nil },
		"error":     func(*http.Request) (string, error) { return "shared", errors.New("who is it?") },
		"no header": ByHeader("X-Api-Key"),
		"no user":   By(func(*http.Request) string { return "" }),
		"a part":    Join(ByHeader("Host"), ByHeader("X-Api-Key")),
	} {
		var reason error
		s := server(t, protect(t, lim, Options{OnDecision: func(_ *http.Request, d Decision) { reason = d.Err }}, nil, Limit{Rule: rule, Key: key}))
		a := get(t, s, "/")
		if a.want(t, 400, "RateLimit: ", "Retry-After: ", "Content-Type: application/problem+json"); reason == nil {
			t.Errorf("%s: no reason", name)
		}
		// The client reads what it can mend, and nothing of the service's own errors.
		if says := strings.Contains(a.body, "whom to count"); says != errors.Is(reason, ErrNoKey) || strings.Contains(a.body, "who is it") {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	for _, key := range []string{"", "shared"} {
		if lim.Peek(key, rule).Remaining != 1 {
			t.Errorf("%q was counted", key)
		}
	}
}

// What the caller does to its slice afterwards is its own affair.
func TestJoinKeepsItsParts(t *testing.T) {
	parts := []KeyFunc{ByHeader("A"), ByHeader("B")}
	join := Join(parts...)
	parts[1] = nil
	if key, err := join(&http.Request{Header: http.Header{"A": {"a"}, "B": {"b"}}}); err != nil || key != limit.JoinKey("a", "b") {
		t.Errorf("%q, %v", key, err)
	}
}

func TestByRoute(t *testing.T) {
	lim, _ := newLimiter(t)
	m, err := New(limit.WithContext(lim), perMinute("route", 1), ByRoute, Options{})
	if err != nil {
		t.Fatal(err)
	}
	served := m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	mux := http.NewServeMux()
	mux.Handle("GET /a/{id}", served)
	mux.Handle("GET /b/{id}", served)
	s := server(t, mux)
	get(t, s, "/a/1").want(t, 200)
	get(t, s, "/a/2").want(t, 429)
	get(t, s, "/b/1").want(t, 200)
	get(t, server(t, m(mux)), "/a/1").want(t, 500) // around the mux no route is known
}
