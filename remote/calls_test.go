package remote

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

func forCallRules(t *testing.T, test func(t *testing.T, b *backend, l *Limiter, r *limit.Rule)) {
	onBoth(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		for _, r := range callRules(t) {
			t.Run(arith.Of(r).Algorithm.String(), func(t *testing.T) { test(t, b, l, r) })
		}
		b.everyKeyExpires()
	})
}

func remains(t *testing.T, l *Limiter, key string, r *limit.Rule) int64 {
	t.Helper()
	return take(t, l, key, r, 0).Remaining
}

func TestTakeAtMost(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, r *limit.Rule) {
		for _, step := range []struct{ n, granted, remaining int64 }{{0, 0, 10}, {7, 7, 3}, {5, 3, 0}, {1, 0, 0}, {0, 0, 0}, {math.MaxInt64, 0, 0}} {
			granted, res, err := l.TakeAtMost(ctx, "k", r, step.n)
			if err != nil || granted != step.granted || res.Remaining != step.remaining || res.Limit != 10 {
				t.Fatalf("at most %d: %d granted, %+v, %v, want %d and %d remaining", step.n, granted, res, err, step.granted, step.remaining)
			}
			if ok := step.granted > 0 || step.n == 0; res.Allowed != ok || (res.RetryAfter > 0) == ok {
				t.Fatalf("at most %d: %+v", step.n, res)
			}
		}
		if granted, res, err := l.TakeAtMost(ctx, "all", r, math.MaxInt64); err != nil || granted != 10 || !res.Allowed {
			t.Errorf("all there is: %d, %+v, %v", granted, res, err)
		}
	})
	l, none := onMini(t).limiter(), funnel(t, 0, 1, time.Second)
	if granted, res, err := l.TakeAtMost(ctx, "k", none, 5); err != nil || granted != 0 || res.Allowed || res.RetryAfter != limit.Never {
		t.Errorf("of a limit of 0: %d, %+v, %v", granted, res, err)
	}
	if n, err := l.Charge(ctx, "k", none, 5); err != nil || n != 0 {
		t.Errorf("%d charged to a limit of 0, %v", n, err)
	}
}

// What is left is granted to the unit, for numbers of any size.
func TestTakeAtMostIsExact(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, rng := b.limiter(), rand.New(rand.NewPCG(3, 3))
		for i := range 60 {
			size := int64(1) << rng.IntN(51)
			rules := []*limit.Rule{funnel(t, size, size, 1000*time.Hour), sliding(t, size, 1000*time.Hour, 1+rng.IntN(20)), fixed(t, size, 1000*time.Hour)}
			r := rules[i%3]
			key := string(rune('a' + i))
			used := rng.Int64N(size + 1)
			take(t, l, key, r, used)
			granted, res, err := l.TakeAtMost(ctx, key, r, math.MaxInt64)
			// Redis' clock goes on: a funnel leaks meanwhile.
			if err != nil || granted < size-used || arith.Of(r).Algorithm != arith.TokenBucket && granted != size-used {
				t.Errorf("%v: %d granted of %d, %+v, %v", r, granted, size-used, res, err)
			}
		}
	})
}

func TestRefund(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, r *limit.Rule) {
		if back, err := l.Refund(ctx, "k", r, 5); back != 0 || err != nil {
			t.Errorf("%d handed back of a key that nobody has used, %v", back, err)
		}
		l.Take(ctx, "k", r, 7)
		for _, step := range []struct{ n, back, remaining int64 }{{0, 0, 3}, {3, 3, 6}, {math.MaxInt64, 4, 10}, {1, 0, 10}} {
			back, err := l.Refund(ctx, "k", r, step.n)
			if got := remains(t, l, "k", r); err != nil || back != step.back || got != step.remaining {
				t.Fatalf("refund of %d: %d handed back, %d remain, %v, want %d and %d", step.n, back, got, err, step.back, step.remaining)
			}
		}
	})
}

// What is handed back of a bucket that counts in part is what counts less.
func TestRefundOfAFadedBucket(t *testing.T) {
	b := onMini(t)
	l, rule := b.limiter(), sliding(t, 10, 10*time.Second, 1)
	b.advance(10*time.Second - time.Duration(b.now()%10_000_000)*time.Microsecond)
	b.advance(500 * time.Millisecond)
	for range 10 { // one a second: nine of them are a window old after 19 s
		take(t, l, "k", rule, 1)
		b.advance(time.Second)
	}
	b.advance(8500 * time.Millisecond)
	for _, step := range []struct{ n, back, remaining int64 }{{0, 0, 9}, {4, 0, 9}, {10, 1, 10}, {1, 0, 10}} {
		back, err := l.Refund(ctx, "k", rule, step.n)
		if got := remains(t, l, "k", rule); err != nil || back != step.back || got != step.remaining {
			t.Errorf("refund of %d: %d handed back, %d remain, %v, want %d and %d", step.n, back, got, err, step.back, step.remaining)
		}
	}
}

func TestSet(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, r *limit.Rule) {
		l.Take(ctx, "k", r, 4)
		for _, step := range []struct{ used, remaining int64 }{{9, 1}, {2, 8}, {10, 0}, {25, 0}, {math.MaxInt64, 0}, {0, 10}, {3, 7}} {
			if err := l.Set(ctx, "k", r, step.used); err != nil {
				t.Fatal(err)
			}
			if got := remains(t, l, "k", r); got != step.remaining {
				t.Fatalf("set to %d: %d remain, want %d", step.used, got, step.remaining)
			}
		}
		if err := l.Reset(ctx, "k", r); err != nil || remains(t, l, "k", r) != 10 {
			t.Errorf("reset: %v", err)
		}
	})
}

// Units of a log that are taken and handed back within one microsecond, or while
// Redis' clock stands still, are counted one by one.
func TestLogWithinOneMicrosecond(t *testing.T) {
	b := onMini(t) // whose clock stands still
	l := &Limiter{store: b.store()}
	rule := limit.Must(limit.SlidingLog("log", 100, time.Hour))
	want := int64(0)
	for i, step := range []int64{12, -3, 5, -11, 20, -1, 30, -40, 60} {
		if want += step; step > 0 {
			if res, err := l.Take(ctx, "k", rule, step); err != nil || !res.Allowed {
				t.Fatalf("%d: %+v, %v", i, res, err)
			}
		} else if back, err := l.Refund(ctx, "k", rule, -step); err != nil || back != -step {
			t.Fatalf("%d: %d handed back, %v", i, back, err)
		}
		if res, err := l.Take(ctx, "k", rule, 0); err != nil || res.Remaining != 100-want {
			t.Fatalf("%d: %d remain, want %d (%v)", i, res.Remaining, 100-want, err)
		}
	}
}

// Allow and AllowN are Take without its answer.
func TestAllow(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, rule := b.limiter(), funnel(t, 3, 1, time.Hour)
		for _, c := range []struct {
			n    int64
			want bool
		}{{1, true}, {3, false}, {2, true}, {1, false}, {0, true}} {
			ok, err := l.AllowN(ctx, "k", rule, c.n)
			if ok != c.want || err != nil {
				t.Errorf("%d units: %v, %v", c.n, ok, err)
			}
		}
		if ok, err := l.Allow(ctx, "other", rule); !ok || err != nil || remains(t, l, "other", rule) != 2 {
			t.Errorf("one of another key: %v, %v", ok, err)
		}
	})
}
