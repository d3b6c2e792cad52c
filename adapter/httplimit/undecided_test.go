package httplimit

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What cannot be decided is in the log, a line a while, and counted as invalid.
func TestUndecidedIsLoggedAndCounted(t *testing.T) {
	for name, c := range map[string]struct {
		limit  Limit
		status int
		line   string
	}{
		"unknown plan":  {Limit{RuleFor: func(*http.Request) *limit.Rule { return nil }, Key: By(byKey)}, 500, "level=ERROR .*RuleFor: limit: rule is nil"},
		"no key":        {Limit{Rule: perMinute("r", 5), Key: ByHeader("Token")}, 400, "level=WARN .*request has no key: no Token"},
		"negative cost": {Limit{Rule: perMinute("r", 5), Key: By(byKey), Cost: func(*http.Request) int64 { return -1 }}, 500, "level=ERROR .*Cost: "},
		"sliding log":   {Limit{RuleFor: func(*http.Request) *limit.Rule { return slidingLog }, Key: By(byKey)}, 500, "level=ERROR .*cannot decide"},
	} {
		var text bytes.Buffer
		lim := hybridtest.New(t, hybridtest.Options{}).Limiter
		s := server(t, protect(t, lim, Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}, nil, c.limit))
		for range 3 {
			get(t, s, "/", "Key: k").want(t, c.status)
		}
		level, what, _ := strings.Cut(c.line, " .*")
		if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, level) || !strings.Contains(got, what) {
			t.Errorf("%s: the log is %q", name, got)
		}
		if n := inside.Of(lim).Figures().Invalid; n != 3 {
			t.Errorf("%s: %d invalid checks, want 3", name, n)
		}
	}
}

// A preflight passes if that is wanted, and costs nothing; another OPTIONS is a request.
func TestPreflights(t *testing.T) {
	lim, _ := newLimiter(t)
	cors := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		_, _ = io.WriteString(w, "served")
	})
	preflight := []string{"Origin: https://a.example", "Access-Control-Request-Method: GET"}
	quiet := slog.New(slog.DiscardHandler)
	one := Limit{Rule: perMinute("r", 1), Key: By(byKey)}
	s := server(t, protect(t, lim, Options{PassPreflights: true, Logger: quiet}, cors, one))
	for range 3 {
		send(t, s, http.MethodOptions, "/", preflight...).want(t, 200, "Access-Control-Allow-Origin: *", "RateLimit: ")
	}
	send(t, s, http.MethodOptions, "/").want(t, 400)
	send(t, s, http.MethodOptions, "/", preflight[0]).want(t, 400)
	send(t, s, http.MethodGet, "/", preflight...).want(t, 400)
	s = server(t, protect(t, lim, Options{Logger: quiet}, cors, one))
	send(t, s, http.MethodOptions, "/", preflight...).want(t, 400)
}
