package httplimit

import (
	"net/http"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A client hears of each of several limits, and what remains of the tightest.
func TestSeveralLimitsInOneRule(t *testing.T) {
	lim, now := newLimiter(t)
	rule := limit.Must(limit.Parse("api", "2/s, 3/m"))
	for policy, names := range map[string][2]string{"": {"api/1s", "api/1m"}, "calls": {"calls/1s", "calls/1m"}} {
		key := By(func(*http.Request) string { return "k" + policy })
		s := server(t, protect(t, lim, Options{}, nil, Limit{Rule: rule, Key: key, Policy: policy}))
		want := func(status int, limits string) {
			t.Helper()
			a := get(t, s, "/")
			if a.StatusCode != status || a.Header.Get("RateLimit") != limits {
				t.Errorf("%d, %q, want %d, %q", a.StatusCode, a.Header.Get("RateLimit"), status, limits)
			}
			if got, want := a.Header.Get("RateLimit-Policy"), `"`+names[0]+`";q=2;w=1, "`+names[1]+`";q=3;w=60`; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		want(200, `"`+names[0]+`";r=1;t=1`)
		want(200, `"`+names[0]+`";r=0;t=1`)
		want(429, `"`+names[0]+`";r=0;t=1`)
		now.Advance(2 * time.Second)
		want(200, `"`+names[1]+`";r=0;t=59`)
		want(429, `"`+names[1]+`";r=0;t=59`)
		now.Advance(58 * time.Second) // the next begins with a bucket, too
	}
	// Beside another limit, and chosen by the request.
	byKey := By(func(*http.Request) string { return "both" })
	other := limit.Must(limit.PerMinute("other", 100))
	s := server(t, protect(t, lim, Options{Headers: XRateLimitHeaders}, nil, Limit{Rule: other, Key: byKey}, Limit{
		RuleFor: func(*http.Request) *limit.Rule { return rule }, Key: byKey, Cost: func(*http.Request) int64 { return 2 },
	}))
	if a := get(t, s, "/"); a.StatusCode != 200 || a.Header.Get("X-RateLimit-Limit") != "2" || a.Header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("%d, %v", a.StatusCode, a.Header)
	}
	if a := get(t, s, "/"); a.StatusCode != 429 || a.Header.Get("X-RateLimit-Limit") != "3" || a.Header.Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("%d, %v", a.StatusCode, a.Header)
	}
}
