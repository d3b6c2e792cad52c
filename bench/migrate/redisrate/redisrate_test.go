package redisrate

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/bench/internal/bubble"
	"github.com/hybridlimit/hybridlimit/compat/redisrate"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// What is equal in redis_rate and in packages hybrid and remote, and what differs. For package
// compat/redisrate see compat_test.go.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

// both are redis_rate and this module on one Redis.
type both struct {
	rdb    *redis.Client
	theirs *redis_rate.Limiter
	ours   *remote.Limiter
	local  *hybrid.Limiter
}

func start(t *testing.T) both {
	t.Helper()
	rdb := bubble.Client(t, bubble.Start(t), 0)
	ours, err := remote.New(rdb, remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	local, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = local.Shutdown(t.Context()) })
	return both{rdb, redis_rate.NewLimiter(rdb), ours, local}
}

func (b both) allow(t *testing.T, key string, l redis_rate.Limit, n int) *redis_rate.Result {
	t.Helper()
	res, err := b.theirs.AllowN(t.Context(), key, l, n)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func (b both) take(t *testing.T, key string, rule *limit.Rule, n int64) limit.Result {
	t.Helper()
	res, err := b.ours.Take(t.Context(), key, rule, n)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// near tells that two durations are equal but for what redis_rate loses: it computes with
// floating-point seconds, of which the embedded Redis keeps 14 digits and a real one 17.
func near(a, b time.Duration) bool { return (a - b).Abs() <= time.Millisecond }

func TestAnswersAreEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, rng := start(t), rand.New(rand.NewPCG(1, 2))
		theirs, ours := redis_rate.Limit{Rate: 8, Period: time.Second, Burst: 20}, limit.Must(limit.TokenBucket("r", limit.Tokens{Burst: 20, Refill: 8, Per: time.Second}))
		refused, fewer := 0, 0
		for i := range 500 {
			time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			n := 1 + rng.IntN(5)
			was, is, alone := b.allow(t, "k", theirs, n), b.take(t, "k", ours, int64(n)), b.local.Take("k", ours, int64(n))
			if (was.Allowed == n) != is.Allowed || was.Allowed != 0 && was.Allowed != n {
				t.Fatalf("%d: %d of %d, %v", i, was.Allowed, n, is)
			}
			if !is.Allowed {
				refused++
				if is.RetryAfter <= 0 || !near(was.RetryAfter, is.RetryAfter) {
					t.Errorf("%d: retry after %v, %v", i, was.RetryAfter, is.RetryAfter)
				}
			} else if was.RetryAfter != -1 || is.RetryAfter != 0 {
				t.Errorf("%d: admitted, and retry after %v, %v", i, was.RetryAfter, is.RetryAfter)
			}
			if !near(was.ResetAfter, is.ResetAfter) || was.Limit.Burst != int(is.Limit) {
				t.Errorf("%d: %+v, %+v", i, was, is)
			}
			switch int64(was.Remaining) {
			case is.Remaining:
			case is.Remaining - 1:
				fewer++
			default:
				if is.Allowed { // a refusal of several units says 0 there
					t.Errorf("%d: %d remain, %d", i, was.Remaining, is.Remaining)
				}
			}
			alone.Source = is.Source
			if alone != is {
				t.Errorf("%d: hybrid %+v, remote %+v", i, alone, is)
			}
		}
		t.Logf("%d of 500 refused; %d times redis_rate says that one unit fewer remains", refused, fewer)
		if refused < 100 {
			t.Errorf("only %d of 500 are refused", refused)
		}
	})
}

// What is refused, what a refusal says, and what nothing can be taken by.
func TestAnswersDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		theirs, ours := redis_rate.PerMinute(10), limit.Must(limit.TokenBucket("r", limit.Tokens{Burst: 10, Refill: 10, Per: time.Minute}))

		// Asking for nothing.
		if was := b.allow(t, "none", theirs, 0); was.Allowed != 0 || was.Remaining != 10 {
			t.Errorf("%+v", was)
		}
		peek, err := b.ours.Peek(t.Context(), "none", ours)
		if is := b.take(t, "none", ours, 0); err != nil || !is.Allowed || is.Remaining != 10 || !peek.Allowed || peek.Remaining != 10 {
			t.Errorf("%+v, %+v, %v", is, peek, err)
		}

		// More than fits at all.
		if was := b.allow(t, "many", theirs, 11); was.Allowed != 0 || was.RetryAfter != 6*time.Second {
			t.Errorf("%+v", was)
		}
		if is := b.take(t, "many", ours, 11); is.Allowed || is.RetryAfter != limit.Never {
			t.Errorf("%+v", is)
		}

		// What remains when several units are refused.
		b.allow(t, "rest", theirs, 7)
		b.take(t, "rest", ours, 7)
		if was, is := b.allow(t, "rest", theirs, 5), b.take(t, "rest", ours, 5); was.Remaining != 0 || is.Remaining != 3 || was.Allowed != 0 || is.Allowed {
			t.Errorf("%+v, %+v", was, is)
		}

		// A negative number.
		b.allow(t, "less", theirs, 5)
		if was := b.allow(t, "less", theirs, -5); was.Remaining != 10 {
			t.Errorf("%+v", was)
		}
		// Some of what was used comes back. All of it, or more, does not: only the answer says so.
		for less, left := range map[int]int{2: 7, 5: 5, 8: 5} {
			key := strconv.Itoa(less)
			b.allow(t, key, theirs, 5)
			was, then := b.allow(t, key, theirs, -less), b.allow(t, key, theirs, 0)
			if was.Allowed != -less || was.Remaining != 5+less || then.Remaining != left {
				t.Errorf("%d handed back: %+v, then %+v", less, was, then)
			}
		}
		if _, _, err := b.ours.TakeAtMost(t.Context(), "less", ours, -5); !errors.Is(err, limit.ErrInvalidN) {
			t.Error(err)
		}
		if _, err := b.ours.Take(t.Context(), "less", ours, -5); !errors.Is(err, limit.ErrInvalidN) {
			t.Error(err)
		}
		if is := b.local.Take("less", ours, -5); is.Allowed || is.Source != limit.SourceInvalid {
			t.Errorf("%+v", is)
		}
	})
}

// AllowAtMost takes fractions of a unit as well, so that more is gone than it says.
func TestAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		theirs, ours := redis_rate.PerMinute(10), limit.Must(limit.TokenBucket("r", limit.Tokens{Burst: 10, Refill: 10, Per: time.Minute}))
		b.allow(t, "k", theirs, 8)
		b.take(t, "k", ours, 8)
		time.Sleep(3 * time.Second) // half a unit
		was, err := b.theirs.AllowAtMost(t.Context(), "k", theirs, 5)
		if err != nil || was.Allowed != 2 {
			t.Errorf("%+v, %v", was, err)
		}
		granted, _, err := b.ours.TakeAtMost(t.Context(), "k", ours, 5)
		if err != nil || granted != 2 {
			t.Errorf("%d, %v", granted, err)
		}
		time.Sleep(3500 * time.Millisecond) // the other half
		if was, is := b.allow(t, "k", theirs, 1), b.take(t, "k", ours, 1); was.Allowed != 0 || !is.Allowed {
			t.Errorf("%+v, %+v", was, is)
		}
	})
}

// What AllowAtMost says when nothing is left, when more is asked for than fits, and of nothing.
func TestAtMostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		theirs, ours := redis_rate.PerMinute(10), limit.Must(limit.TokenBucket("r", limit.Tokens{Burst: 10, Refill: 10, Per: time.Minute}))
		for i, n := range []int{0, 3, 50, 1, 5} {
			was, err1 := b.theirs.AllowAtMost(t.Context(), "k", theirs, n)
			granted, is, err2 := b.ours.TakeAtMost(t.Context(), "k", ours, int64(n))
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if int64(was.Allowed) != granted || int64(was.Remaining) != is.Remaining || !near(was.ResetAfter, is.ResetAfter) ||
				is.Allowed != (granted > 0 || n == 0) || !is.Allowed && !near(was.RetryAfter, is.RetryAfter) || is.Allowed && (was.RetryAfter != -1 || is.RetryAfter != 0) {
				t.Errorf("%d: %+v, %d %+v", i, was, granted, is)
			}
		}
	})
}

// A key that is in use gets another limit: another burst is the same for both. Of another rate
// theirs keep how long it takes, ours how many units it is.
func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		rule := func(burst, units int64) *limit.Rule {
			return limit.Must(limit.TokenBucket("r", limit.Tokens{Burst: burst, Refill: units, Per: time.Minute}))
		}
		of := func(burst, rate int) redis_rate.Limit {
			return redis_rate.Limit{Rate: rate, Period: time.Minute, Burst: burst}
		}
		for key, c := range map[string]struct{ used, burst, left int }{"larger": {10, 20, 9}, "smaller": {2, 5, 2}, "too small": {8, 5, 0}} {
			b.allow(t, key, of(10, 10), c.used)
			b.take(t, key, rule(10, 10), int64(c.used))
			was, is := b.allow(t, key, of(c.burst, 10), 1), b.take(t, key, rule(int64(c.burst), 10), 1)
			if was.Remaining != c.left || is.Remaining != int64(c.left) || !near(max(was.RetryAfter, 0), is.RetryAfter) || !near(was.ResetAfter, is.ResetAfter) {
				t.Errorf("a burst that is %s: %+v, %+v", key, was, is)
			}
		}
		b.allow(t, "k", of(10, 10), 10)
		b.take(t, "k", rule(10, 10), 10)
		if was, is := b.allow(t, "k", of(10, 20), 1), b.take(t, "k", rule(10, 20), 1); !near(was.ResetAfter, time.Minute) || !near(is.ResetAfter, 30*time.Second) ||
			!near(was.RetryAfter, 33*time.Second) || !near(is.RetryAfter, 3*time.Second) {
			t.Errorf("twice the rate: %+v, %+v", was, is)
		}
	})
}

// Limits that are none.
func TestNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		if res, err := b.theirs.Allow(t.Context(), "k", redis_rate.Limit{Period: time.Minute, Burst: 3}); err == nil {
			t.Errorf("a rate of 0: %+v", res)
		}
		if _, err := limit.TokenBucket("r", limit.Tokens{Burst: 3, Refill: 0, Per: time.Minute}); err == nil {
			t.Error("a rate of 0 is a rule")
		}
		was, is := b.allow(t, "k", redis_rate.Limit{Rate: 10, Period: time.Minute}, 1), b.take(t, "k", limit.Must(limit.TokenBucket("r", limit.Tokens{Burst: 0, Refill: 10, Per: time.Minute})), 1)
		if was.Allowed != 0 || was.RetryAfter != 6*time.Second || is.Allowed || is.RetryAfter != limit.Never {
			t.Errorf("a burst of 0: %+v, %+v", was, is)
		}
	})
}

// A counter of redis_rate belongs to a key, one of ours to a key under a rule's name.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		reads, writes := limit.Must(limit.TokenBucket("reads", limit.Tokens{Burst: 10, Refill: 10, Per: time.Minute})), limit.Must(limit.TokenBucket("writes", limit.Tokens{Burst: 10, Refill: 10, Per: time.Minute}))
		b.allow(t, "k", redis_rate.PerMinute(10), 10)
		b.take(t, "k", reads, 10)
		// The same key under another limit: theirs has been used for it, ours has not.
		if was := b.allow(t, "k", redis_rate.Limit{Rate: 10, Period: time.Minute, Burst: 9}, 1); was.Allowed != 0 {
			t.Errorf("%+v", was)
		}
		if is := b.take(t, "k", writes, 1); !is.Allowed {
			t.Errorf("%+v", is)
		}
		// One Redis holds both: no key of theirs is one of ours.
		keys, err := b.rdb.Keys(t.Context(), "*").Result()
		theirs := 0
		for _, key := range keys {
			if key == "rate:k" {
				theirs++
			} else if key[:2] != "hl" {
				t.Errorf("key %q", key)
			}
		}
		if err != nil || theirs != 1 || len(keys) != 3 {
			t.Errorf("%q, %v", keys, err)
		}
		// Both forget one key.
		if err := errors.Join(b.theirs.Reset(t.Context(), "k"), b.ours.Reset(t.Context(), "k", reads)); err != nil {
			t.Error(err)
		}
		if was, is := b.allow(t, "k", redis_rate.PerMinute(10), 10), b.take(t, "k", reads, 10); was.Allowed != 10 || !is.Allowed {
			t.Errorf("%+v, %+v", was, is)
		}
	})
}

// With the Redis away theirs has an error for each check, ours an answer.
func TestRedisAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := bubble.Start(t)
		rdb := bubble.Client(t, server, 0)
		lim, err := hybrid.New(rdb, hybrid.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Shutdown(t.Context())
		rule := limit.Must(limit.TokenBucket("r", limit.Tokens{Burst: 10, Refill: 10, Per: time.Minute}))
		server.SetError("LOADING away")
		time.Sleep(10 * time.Second)
		if _, err := redis_rate.NewLimiter(rdb).Allow(t.Context(), "k", redis_rate.PerMinute(10)); err == nil {
			t.Error("no error")
		}
		for range 10 {
			if !lim.Allow("k", rule) {
				t.Error("one of the first 10 is refused")
			}
		}
		if res := lim.Take("k", rule, 1); res.Allowed || res.Source != limit.SourceDegraded {
			t.Errorf("%+v", res)
		}
		server.SetError("")
		time.Sleep(10 * time.Second)
	})
}

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
