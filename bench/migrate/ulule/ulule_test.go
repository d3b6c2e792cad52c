package ulule

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ulule/limiter/v3"
	store "github.com/ulule/limiter/v3/drivers/store/redis"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/bench/internal/bubble"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

// What the page says differs; that the rest is equal TestPrograms shows.
func TestDifferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, ctx := bubble.Client(t, bubble.Start(t), 0), t.Context()
		is := limit.Must(remote.New(rdb, remote.Options{}))
		rule := limit.Must(limit.SlidingWindow("r", 5, time.Minute))
		must := func(c limiter.Context, err error) limiter.Context {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		take := func(key string, n int64) limit.Result {
			t.Helper()
			res, err := is.Take(ctx, key, rule, n)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		was := limiter.New(limit.Must(store.NewStore(rdb)), limiter.Rate{Limit: 5, Period: time.Minute})
		// Nothing is left. Peek of theirs says that the limit is not passed, ours that the next one is refused.
		must(was.Increment(ctx, "k", 5))
		take("k", 5)
		peek, err := is.Peek(ctx, "k", rule)
		if a := must(was.Peek(ctx, "k")); a.Reached || a.Remaining != 0 || err != nil || peek.Allowed || peek.Remaining != 0 {
			t.Errorf("%+v, %+v, %v", a, peek, err)
		}
		// Several units that do not all fit: theirs are counted, ours are not.
		must(was.Increment(ctx, "several", 3))
		take("several", 3)
		if a, b := must(was.Increment(ctx, "several", 3)), take("several", 3); !a.Reached || b.Allowed || b.Remaining != 2 {
			t.Errorf("%+v, %+v", a, b)
		}
		if a, b := must(was.Get(ctx, "several")), take("several", 1); !a.Reached || !b.Allowed {
			t.Errorf("%+v, %+v", a, b)
		}
		// Below 0: theirs has more left than the limit, ours is an error.
		if a := must(was.Increment(ctx, "less", -2)); a.Remaining != 7 || a.Reached {
			t.Errorf("%+v", a)
		}
		if _, err := is.Take(ctx, "k", rule, -2); !errors.Is(err, limit.ErrInvalidN) {
			t.Errorf("%v", err)
		}
	})
}

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
