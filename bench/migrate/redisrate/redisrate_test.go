package redisrate

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/bench/internal/bubble"
	"github.com/hybridlimit/hybridlimit/compat/redisrate"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// A service before, during and after its move from redis_rate. How the answers differ is in compat_test.go.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

// ask sends requests of one user, and returns the status and Retry-After of each.
func ask(h http.Handler, n int) (answers [][2]string) {
	for range n {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.Header.Set("X-User", "alice")
		h.ServeHTTP(w, r)
		answers = append(answers, [2]string{w.Result().Status, w.Header().Get("Retry-After")})
	}
	return answers
}

func admitted(answers [][2]string) (n int) {
	for _, a := range answers {
		if a[0] == "200 OK" {
			n++
		}
	}
	return n
}

func TestPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := bubble.Client(t, bubble.Start(t), 0)
		served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		is, lim, err := after(rdb, served)
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Shutdown(t.Context())
		was := before(rdb, served)
		for i, n := range []int{122, 2, 60, 120} {
			// Never when a unit comes back at that very instant: redis_rate computes with
			// floating-point seconds, and limiters that share round up.
			time.Sleep(10200 * time.Millisecond)
			theirs, ours := ask(was, n), ask(is, n)
			if !slices.Equal(theirs, ours) {
				t.Errorf("%d: %d of %d are admitted, %d", i, admitted(theirs), n, admitted(ours))
			}
			if refused := ours[n-1]; refused != [2]string{"429 Too Many Requests", "1"} && n != 2 {
				t.Errorf("%d: the last answer is %q", i, refused)
			}
		}
	})
}

// After the switch the answers go on as if there had been none, for who was known before.
func TestSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := bubble.Client(t, bubble.Start(t), 0)
		lim, err := hybrid.New(rdb, hybrid.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Shutdown(t.Context())
		old, ours := redis_rate.NewLimiter(rdb), redisrate.From(lim)
		for i, n := range []int{100, 30, 70} {
			for range n {
				if _, err := during(t.Context(), old, ours, "alice"); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
			time.Sleep(10200 * time.Millisecond)
		}
		was, err1 := old.AllowN(t.Context(), "alice", redis_rate.PerMinute(120), 0)
		is, err2 := ours.AllowN(t.Context(), "alice", redisrate.PerMinute(120), 0)
		if err := errors.Join(err1, err2); err != nil || is.Remaining == 120 || was.Remaining-is.Remaining > 1 || is.Remaining-was.Remaining > 1 {
			t.Errorf("%+v, %+v; %v", was, is, err)
		}
		// One who was not counted along is told what redis_rate knows.
		if was, err = old.AllowN(t.Context(), "bob", redis_rate.PerMinute(120), 90); err != nil {
			t.Fatal(err)
		}
		if err := lim.Set(t.Context(), "bob", perUser, int64(was.Limit.Burst-was.Remaining)); err != nil {
			t.Fatal(err)
		}
		if left := lim.Peek("bob", perUser).Remaining; left != 30 {
			t.Errorf("%d", left)
		}
	})
}
