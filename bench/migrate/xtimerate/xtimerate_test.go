package xtimerate

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// What docs/migrate/x-time-rate.md says is equal, and what it says differs.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ours(t *testing.T) *local.Limiter {
	t.Helper()
	lim, err := local.New(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lim.Close)
	return lim
}

func bucket(burst, refill int64, per time.Duration) *limit.Rule {
	return limit.Must(limit.TokenBucket("r", burst, refill, per))
}

// near tells that two durations are equal but for what floating-point numbers lose.
func near(a, b time.Duration) bool { return (a - b).Abs() <= time.Microsecond }

func TestAnswersAreEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was, is, rule, rng := rate.NewLimiter(8, 20), ours(t), bucket(20, 8, time.Second), rand.New(rand.NewPCG(3, 4))
		refused, reserved := 0, 0
		for i := range 5000 {
			time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			n := 1 + rng.IntN(5)
			if rng.IntN(10) == 0 {
				a, b := was.ReserveN(time.Now(), n), is.Reserve("k", rule, int64(n))
				if a.OK() != b.OK() || !near(a.Delay(), b.Delay()) {
					t.Fatalf("%d: reserved for %v, %v", i, a.Delay(), b.Delay())
				}
				if a.Delay() > 0 {
					reserved++
				}
			} else {
				a, b := was.AllowN(time.Now(), n), is.AllowN("k", rule, int64(n))
				if a != b {
					t.Fatalf("%d: %d units %t, %t", i, n, a, b)
				}
				if !b {
					refused++
				}
			}
			if tokens := was.Tokens(); int64(max(tokens, 0)+1e-9) != is.Peek("k", rule).Remaining {
				t.Errorf("%d: %v tokens, %v", i, tokens, is.Peek("k", rule))
			}
		}
		if refused < 100 || reserved < 50 {
			t.Errorf("%d refused, %d reserved ahead", refused, reserved)
		}
	})
}

func TestRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			was *rate.Limiter
			is  *limit.Rule
		}{
			"every":    {rate.NewLimiter(rate.Every(3*time.Second), 1), bucket(1, 1, 3*time.Second)},
			"half":     {rate.NewLimiter(0.5, 2), bucket(2, 1, 2*time.Second)},
			"blocked":  {rate.NewLimiter(10, 0), bucket(0, 10, time.Second)},
			"thousand": {rate.NewLimiter(1000, 10), bucket(10, 1000, time.Second)},
		} {
			lim := ours(t)
			for i := range 40 {
				if a, b := c.was.Allow(), lim.Allow(name, c.is); a != b {
					t.Errorf("%s, %d: %t, %t", name, i, a, b)
				}
				time.Sleep(500 * time.Millisecond)
			}
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was, is, rule, start := rate.NewLimiter(1, 2), ours(t), bucket(2, 1, time.Second), time.Now()
		for i := range 5 {
			if err := errors.Join(was.Wait(t.Context()), is.Wait(t.Context(), "k", rule, 1)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); !near(took, max(0, time.Duration(i-1)*time.Second)) {
				t.Errorf("%d waited until %v", i, took)
			}
		}

		// A deadline that cannot be met is an error at once. Only one of ours can be told apart.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start = time.Now()
		theirs, err := was.Wait(ctx), is.Wait(ctx, "k", rule, 1)
		if theirs == nil || errors.Is(theirs, context.DeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
			t.Errorf("%v, %v after %v", theirs, err, time.Since(start))
		}
		if late, ok := errors.AsType[*limit.WaitError](err); !ok || !near(late.Need, time.Second) {
			t.Errorf("%+v", late)
		}
		if theirs, err := was.WaitN(t.Context(), 3), is.Wait(t.Context(), "k", rule, 3); theirs == nil || !errors.Is(err, limit.ErrTooMany) {
			t.Errorf("%v, %v", theirs, err)
		}
	})
}

func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was, is, rule := rate.NewLimiter(1, 2), ours(t), bucket(2, 1, time.Second)
		// More than fits is not OK.
		if a, b := was.ReserveN(time.Now(), 3), is.Reserve("k", rule, 3); a.OK() || b.OK() || a.Delay() != rate.InfDuration || b.Delay() != limit.Never {
			t.Errorf("%v, %v", a.Delay(), b.Delay())
		}
		if rate.InfDuration != limit.Never {
			t.Error("they name another duration")
		}
		// The last of those who have reserved hands back, and the next one gets his place.
		was.ReserveN(time.Now(), 2)
		is.Reserve("k", rule, 2)
		a, b := was.Reserve(), is.Reserve("k", rule, 1)
		a.Cancel()
		b.Cancel()
		if a, b := was.Reserve(), is.Reserve("k", rule, 1); a.Delay() != time.Second || b.Delay() != time.Second {
			t.Errorf("%v, %v", a.Delay(), b.Delay())
		}
		// Units that could be used at once: theirs stay taken, ours come back.
		time.Sleep(time.Minute)
		was, is = rate.NewLimiter(1, 2), ours(t)
		a, b = was.ReserveN(time.Now(), 2), is.Reserve("k", rule, 2)
		time.Sleep(time.Millisecond)
		a.Cancel()
		b.Cancel()
		if a, b := was.Allow(), is.Allow("k", rule); a || !b {
			t.Errorf("%t, %t", a, b)
		}
	})
}

// SetBurst and SetLimit keep the tokens that are there; another rule of the same name keeps the
// units that were used.
func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was, is := rate.NewLimiter(1, 10), ours(t)
		was.AllowN(time.Now(), 10)
		is.AllowN("k", bucket(10, 1, time.Second), 10)
		was.SetLimit(5)
		if a, b := was.Tokens(), is.Peek("k", bucket(10, 5, time.Second)).Remaining; a != 0 || b != 0 {
			t.Errorf("another rate: %v tokens, %v", a, b)
		}
		was.SetBurst(30)
		if a, b := was.Tokens(), is.Peek("k", bucket(30, 5, time.Second)).Remaining; a != 0 || b != 20 {
			t.Errorf("another burst: %v tokens, %v", a, b)
		}
	})
}

func TestNegative(t *testing.T) {
	was, is, rule := rate.NewLimiter(rate.Every(time.Hour), 10), ours(t), bucket(10, 1, time.Hour)
	was.AllowN(time.Now(), 10)
	is.AllowN("k", rule, 10)
	if !was.AllowN(time.Now(), -5) || !was.AllowN(time.Now(), 5) {
		t.Error("they refuse")
	}
	if res := is.Take("k", rule, -5); res.Allowed || res.Source != limit.SourceInvalid || is.Allow("k", rule) {
		t.Errorf("%+v", res)
	}
}

// The programs wait equally long for one host, and not for another.
func TestPrograms(t *testing.T) {
	transport := http.DefaultTransport
	http.DefaultTransport = roundTrip(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: http.StatusOK}, nil })
	defer func() { http.DefaultTransport = transport }()
	synctest.Test(t, func(t *testing.T) {
		is, err := newAfter()
		if err != nil {
			t.Fatal(err)
		}
		defer is.lim.Close()
		for name, do := range map[string]func(context.Context, *http.Request) (*http.Response, error){"before": newBefore().do, "after": is.do} {
			start := time.Now()
			for i := range 40 {
				r, err := http.NewRequest(http.MethodGet, "http://a.example", nil)
				if err != nil {
					t.Fatal(err)
				}
				if i == 39 {
					r.URL.Host = "b.example"
				}
				if _, err := do(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(start); !near(took, 1900*time.Millisecond) {
				t.Errorf("%s: 39 calls of one host and 1 of another took %v", name, took)
			}
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
