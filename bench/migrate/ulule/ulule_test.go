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
	"github.com/ulule/limiter/v3/drivers/store/memory"
	store "github.com/ulule/limiter/v3/drivers/store/redis"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/bench/internal/bubble"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// What docs/migrate/ulule-limiter.md says is equal, and what it says differs.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

func TestCalls(t *testing.T) {
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
		for i := range 5 {
			if a, b := must(was.Get(ctx, "k")), take("k", 1); a.Reached || !b.Allowed || a.Remaining != b.Remaining || a.Limit != b.Limit {
				t.Errorf("%d: %+v, %+v", i, a, b)
			}
		}
		// Nothing is left. Peek of theirs says that the limit is not passed, ours that the
		// next one is refused.
		peek, err := is.Peek(ctx, "k", rule)
		if a := must(was.Peek(ctx, "k")); a.Reached || a.Remaining != 0 || err != nil || peek.Allowed || peek.Remaining != 0 {
			t.Errorf("%+v, %+v, %v", a, peek, err)
		}
		if a, b := must(was.Get(ctx, "k")), take("k", 1); !a.Reached || b.Allowed || b.RetryAfter <= 0 {
			t.Errorf("%+v, %+v", a, b)
		}
		if a := must(was.Peek(ctx, "k")); !a.Reached {
			t.Errorf("%+v", a)
		}
		// Both forget.
		must(was.Reset(ctx, "k"))
		if err := is.Reset(ctx, "k", rule); err != nil {
			t.Fatal(err)
		}
		// Several units that do not all fit: theirs are counted, ours are not.
		must(was.Increment(ctx, "k", 3))
		take("k", 3)
		if a, b := must(was.Increment(ctx, "k", 3)), take("k", 3); !a.Reached || b.Allowed || b.Remaining != 2 {
			t.Errorf("%+v, %+v", a, b)
		}
		if a, b := must(was.Get(ctx, "k")), take("k", 1); !a.Reached || !b.Allowed {
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

// A window of theirs begins with its first request and ends all at once. A rolling one of
// ours lets go what is a window old, and one that is aligned ends by the clock.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, ctx := bubble.Client(t, bubble.Start(t), 0), t.Context()
		is := limit.Must(remote.New(rdb, remote.Options{}))
		rolling, aligned := limit.Must(limit.SlidingWindow("rolling", 10, time.Minute)), limit.Must(limit.FixedWindow("aligned", 10, time.Minute))
		admitted := func() (was, roll, align int) {
			s := limiter.New(memory.NewStoreWithOptions(limiter.StoreOptions{Prefix: "m"}), limiter.Rate{Limit: 10, Period: time.Minute})
			ask := func(n int) {
				for range n {
					a, err1 := s.Get(ctx, "k")
					b, err2 := is.Take(ctx, "k", rolling, 1)
					c, err3 := is.Take(ctx, "k", aligned, 1)
					if err1 != nil || err2 != nil || err3 != nil {
						t.Fatal(err1, err2, err3)
					}
					if !a.Reached {
						was++
					}
					if b.Allowed {
						roll++
					}
					if c.Allowed {
						align++
					}
				}
			}
			ask(1) // the window of theirs begins 10 s after a full minute
			time.Sleep(58 * time.Second)
			ask(9)
			time.Sleep(3 * time.Second)
			ask(20)
			return was, roll, align
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(70 * time.Second)))
		// Within 3 seconds theirs admits 19. The rolling window still counts the 9 of these
		// that came first. The aligned one has begun anew before them, and is now full.
		if was, roll, align := admitted(); was != 20 || roll < 11 || roll > 12 || align != 11 {
			t.Errorf("%d, %d, %d", was, roll, align)
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
