package xtimerate

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// What is equal, and what differs.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ours(t *testing.T) *local.Limiter {
	t.Helper()
	lim, err := local.New(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

func bucket(burst, refill int64, per time.Duration) *limit.Rule {
	return limit.Must(limit.TokenBucket("r", limit.Tokens{Burst: burst, Refill: refill, Per: per}))
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
				a, b := was.ReserveN(time.Now(), n), is.ReserveN("k", rule, int64(n))
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
			if err := errors.Join(was.Wait(t.Context()), is.Wait(t.Context(), "k", rule)); err != nil {
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
		theirs, err := was.Wait(ctx), is.Wait(ctx, "k", rule)
		if theirs == nil || errors.Is(theirs, context.DeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
			t.Errorf("%v, %v after %v", theirs, err, time.Since(start))
		}
		if late, ok := errors.AsType[*limit.WaitError](err); !ok || !near(late.Need, time.Second) {
			t.Errorf("%+v", late)
		}
		if theirs, err := was.WaitN(t.Context(), 3), is.WaitN(t.Context(), "k", rule, 3); theirs == nil || !errors.Is(err, limit.ErrTooMany) {
			t.Errorf("%v, %v", theirs, err)
		}
	})
}

func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was, is, rule := rate.NewLimiter(1, 2), ours(t), bucket(2, 1, time.Second)
		// More than fits is not OK.
		if a, b := was.ReserveN(time.Now(), 3), is.ReserveN("k", rule, 3); a.OK() || b.OK() || a.Delay() != rate.InfDuration || b.Delay() != limit.Never {
			t.Errorf("%v, %v", a.Delay(), b.Delay())
		}
		if rate.InfDuration != limit.Never {
			t.Error("they name another duration")
		}
		// The last of those who have reserved hands back, and the next one gets his place.
		was.ReserveN(time.Now(), 2)
		is.ReserveN("k", rule, 2)
		a, b := was.Reserve(), is.Reserve("k", rule)
		a.Cancel()
		b.Cancel()
		if a, b := was.Reserve(), is.Reserve("k", rule); a.Delay() != time.Second || b.Delay() != time.Second {
			t.Errorf("%v, %v", a.Delay(), b.Delay())
		}
		// Units that could be used at once: theirs stay taken, ours come back.
		time.Sleep(time.Minute)
		was, is = rate.NewLimiter(1, 2), ours(t)
		a, b = was.ReserveN(time.Now(), 2), is.ReserveN("k", rule, 2)
		time.Sleep(time.Millisecond)
		a.Cancel()
		b.Cancel()
		if a, b := was.Allow(), is.Allow("k", rule); a || !b {
			t.Errorf("%t, %t", a, b)
		}
	})
}

// What a canceled reservation or wait hands back, and whom it helps.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was, is, rule := rate.NewLimiter(1, 1), ours(t), bucket(1, 1, time.Second)
		was.Allow()
		is.Allow("k", rule)
		a, b := was.Reserve(), is.Reserve("k", rule)
		was.Reserve()
		is.Reserve("k", rule)
		// Nobody moves up when one hands back behind whom others have reserved.
		a.Cancel()
		b.Cancel()
		a, b = was.Reserve(), is.Reserve("k", rule)
		if a.Delay() != 3*time.Second || b.Delay() != 3*time.Second {
			t.Errorf("behind others: %v, %v", a.Delay(), b.Delay())
		}
		// Each further Cancel of theirs hands back once more.
		for range 2 {
			a.Cancel()
			b.Cancel()
		}
		if a, b := was.Reserve(), is.Reserve("k", rule); a.Delay() != time.Second || b.Delay() != 3*time.Second {
			t.Errorf("canceled twice: %v, %v", a.Delay(), b.Delay())
		}

		// A wait that is given up takes nothing.
		was, rule = rate.NewLimiter(1, 1), bucket(1, 1, time.Second)
		was.Allow()
		is.Allow("w", rule)
		for name, wait := range map[string]func(context.Context) error{
			"theirs": was.Wait, "ours": func(ctx context.Context) error { return is.Wait(ctx, "w", rule) },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if err := wait(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if a, b := was.Reserve(), is.Reserve("w", rule); !near(a.Delay(), 800*time.Millisecond) || !near(b.Delay(), 800*time.Millisecond) {
			t.Errorf("%v, %v", a.Delay(), b.Delay())
		}
	})
}

// Nothing is asked for while units are reserved ahead: theirs wait for their turn.
func TestNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was, is, rule := rate.NewLimiter(1, 1), ours(t), bucket(1, 1, time.Second)
		for range 2 {
			was.Reserve()
			is.Reserve("k", rule)
		}
		if tokens, left := was.Tokens(), is.Peek("k", rule).Remaining; tokens != -1 || left != 0 {
			t.Errorf("%v tokens, %d left", tokens, left)
		}
		if a, b := was.AllowN(time.Now(), 0), is.AllowN("k", rule, 0); a || !b {
			t.Errorf("%t, %t", a, b)
		}
		if a, b := was.ReserveN(time.Now(), 0), is.ReserveN("k", rule, 0); a.Delay() != time.Second || b.Delay() != 0 {
			t.Errorf("%v, %v", a.Delay(), b.Delay())
		}
		start := time.Now()
		if err := is.WaitN(t.Context(), "k", rule, 0); err != nil || time.Since(start) != 0 {
			t.Errorf("ours: %v after %v", err, time.Since(start))
		}
		if err := was.WaitN(t.Context(), 0); err != nil || time.Since(start) != time.Second {
			t.Errorf("theirs: %v after %v", err, time.Since(start))
		}
	})
}

// Limits that are none: without a rate, without a burst, without both.
func TestNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was := rate.NewLimiter(0, 3)
		if !was.AllowN(time.Now(), 3) || was.Allow() || was.Reserve().Delay() != rate.InfDuration {
			t.Error("a rate of 0 is not the burst, and then nothing")
		}
		if rate.Every(0) != rate.Inf || rate.Every(-1) != rate.Inf {
			t.Error("every 0 is a limit")
		}
		for name, err := range map[string]error{
			"no rate": second(limit.TokenBucket("r", limit.Tokens{Burst: 3, Refill: 0, Per: time.Second})), "every 0": second(limit.TokenBucket("r", limit.Tokens{Burst: 1, Refill: 1, Per: 0})), "a burst below 0": second(limit.TokenBucket("r", limit.Tokens{Burst: -1, Refill: 1, Per: time.Second})),
		} {
			if err == nil {
				t.Errorf("%s is a rule", name)
			}
		}
		is, none := ours(t), bucket(0, 10, time.Second)
		if new(rate.Limiter).Allow() || is.Allow("k", none) {
			t.Error("no burst, and admitted")
		}
		if res := is.Take("k", limit.Unlimited(), 1); res.Allowed || res.Source != limit.SourceInvalid {
			t.Errorf("a limiter that is asked about Unlimited: %+v", res)
		}
	})
}

func second(_ *limit.Rule, err error) error { return err }

// A third of a second is no whole number of nanoseconds.
func TestRounding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was, is, rule := rate.NewLimiter(3, 1), ours(t), bucket(1, 3, time.Second)
		was.Allow()
		is.Allow("k", rule)
		if a, b := was.Reserve().Delay(), is.Reserve("k", rule).Delay(); a != 333333333 || b != 333333334 {
			t.Errorf("%d, %d", a, b)
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

		// A smaller one: theirs keep what fits, ours what was used.
		was, is = rate.NewLimiter(1, 10), ours(t)
		was.AllowN(time.Now(), 4)
		is.AllowN("k", bucket(10, 1, time.Second), 4)
		was.SetBurst(5)
		if a, b := was.Tokens(), is.Peek("k", bucket(5, 1, time.Second)).Remaining; a != 5 || b != 1 {
			t.Errorf("a smaller burst: %v tokens, %v", a, b)
		}
		// What is reserved ahead counts by the new rate.
		was, is = rate.NewLimiter(1, 1), ours(t)
		for range 3 {
			was.Reserve()
			is.Reserve("k", bucket(1, 1, time.Second))
		}
		was.SetLimit(10)
		if a, b := was.Reserve().Delay(), is.Reserve("k", bucket(1, 10, time.Second)).Delay(); a != 300*time.Millisecond || b != 300*time.Millisecond {
			t.Errorf("another rate, with units reserved ahead: %v, %v", a, b)
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
	if err := was.WaitN(t.Context(), -1); err != nil || !was.ReserveN(time.Now(), -1).OK() {
		t.Errorf("they refuse: %v", err)
	}
	if err := is.WaitN(t.Context(), "k", rule, -1); !errors.Is(err, limit.ErrInvalidN) || is.ReserveN("k", rule, -1).OK() {
		t.Error(err)
	}
}
