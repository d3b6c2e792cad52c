package httplimit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Somebody logs in 24 times with the right password, under a limit of five failures an hour, by each
// algorithm, exact or not: all log-ins are admitted, and then five wrong passwords. The units are handed
// back by RefundOn, or because Settle says that it has cost nothing.
//
// Fault 107: units that a middleware hands back.
func TestHandedBack(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	free := func(status int) bool { return status < 300 }
	for _, rule := range []*limit.Rule{
		limit.Must(limit.TokenBucket("bucket", 5, time.Hour, 5)),
		limit.Must(limit.SlidingWindow("sliding", 5, time.Hour)),
		limit.Must(limit.FixedWindow("fixed", 5, time.Hour)),
		limit.Must(limit.Quota("quota", 5, limit.Calendar{Unit: limit.Day})),
	} {
		for _, rule := range []*limit.Rule{rule, rule.Exact()} {
			for name, c := range map[string]struct {
				options Options
				settle  func(r *http.Request, a Answer) int64
			}{
				"RefundOn": {Options{RefundOn: free}, nil},
				"Settle": {Options{}, func(_ *http.Request, a Answer) int64 {
					if free(a.Status) {
						return 0
					}
					return a.Taken
				}},
			} {
				by := limit.JoinKey(name, fmt.Sprint(rule.IsExact()))
				service := protect(t, h.Limiter, c.options, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Password") != "right" {
						w.WriteHeader(http.StatusForbidden)
					}
				}), Limit{Rule: rule, Key: By(byKey), Settle: c.settle})
				logIn := func(password string) int {
					w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
					r.Header.Set("Key", by)
					r.Header.Set("Password", password)
					service.ServeHTTP(w, r)
					return w.Code
				}
				for i := range 24 {
					if code := logIn("right"); code != http.StatusOK {
						t.Errorf("%v, exact %v, %s: log-in %d: %d", rule, rule.IsExact(), name, i, code)
					}
				}
				for i := range 6 {
					want := http.StatusForbidden
					if i == 5 {
						want = http.StatusTooManyRequests
					}
					if code := logIn("wrong"); code != want {
						t.Errorf("%v, exact %v, %s: wrong password %d: %d, want %d", rule, rule.IsExact(), name, i, code, want)
					}
				}
			}
		}
	}
	if s := inside.Of(h.Limiter).Figures(); s.UnreturnedUnits != 0 {
		t.Errorf("%d units are not given back", s.UnreturnedUnits)
	}
}
