package ulule

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/bench/internal/bubble"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

func ask(h http.Handler) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	r.Header.Set("X-User", "alice")
	h.ServeHTTP(w, r)
	return w
}

func TestPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := bubble.Client(t, bubble.Start(t), 0)
		served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		was, err := before(rdb, served)
		if err != nil {
			t.Fatal(err)
		}
		is, lim, err := after(rdb, served)
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Shutdown(t.Context())
		time.Sleep(3 * time.Second) // synced
		for i := range 102 {
			a, b := ask(was), ask(is)
			if a.Code != b.Code || (a.Code == http.StatusOK) != (i < 100) {
				t.Errorf("%d: %d, %d", i, a.Code, b.Code)
			}
			for _, field := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining"} {
				if a.Header().Get(field) != b.Header().Get(field) {
					t.Errorf("%d: %s is %s, %s", i, field, a.Header().Get(field), b.Header().Get(field))
				}
			}
			for name, w := range map[string]*httptest.ResponseRecorder{"before": a, "after": b} {
				// A Unix time for both.
				if at, err := strconv.ParseInt(w.Header().Get("X-RateLimit-Reset"), 10, 64); err != nil || time.Until(time.Unix(at, 0)) > 67*time.Second || time.Until(time.Unix(at, 0)) < 0 {
					t.Errorf("%d, %s: reset at %v, %v", i, name, time.Unix(at, 0), err)
				}
			}
			if i >= 100 && (a.Header().Get("Retry-After") != "" || b.Header().Get("Retry-After") == "") {
				t.Errorf("%d: %q, %q", i, a.Header().Get("Retry-After"), b.Header().Get("Retry-After"))
			}
		}
	})
}
