package remote

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A charge counts what does not fit, up to what each algorithm can hold.
//
// Fault 101: units are charged above the limit.
func TestCharge(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, r *limit.Rule) {
		charge := func(n, want int64) {
			t.Helper()
			if got, err := l.Charge(ctx, "k", r, n); err != nil || got != want {
				t.Fatalf("%d of %d units charged, %v, want %d", got, n, err, want)
			}
		}
		if ok, err := l.AllowN(ctx, "k", r, 6); !ok || err != nil {
			t.Fatal(ok, err)
		}
		charge(0, 0)
		charge(2, 2)
		if left := remains(t, l, "k", r); left != 2 {
			t.Fatalf("%d remain, want 2", left)
		}
		most := int64(100)
		switch arith.Of(r).Algorithm {
		case arith.TokenBucket:
			most = 12
		case arith.SlidingLog:
			most = 2
		}
		charge(100, most)
		if res, err := l.Peek(ctx, "k", r); err != nil || res.Allowed || res.Remaining != 0 || res.RetryAfter > 2*r.Period() {
			t.Fatalf("%+v, %v", res, err)
		}
		if most < 100 {
			charge(1, 0)
			charge(math.MaxInt64, 0)
		}
		back, err := l.Refund(ctx, "k", r, math.MaxInt64)
		// Nobody has booked ahead, so a leaky bucket above its capacity gives units back as well.
		if want := 8 + most; err != nil || back != want {
			t.Errorf("%d units given back, %v, want %d", back, err, want)
		}
	})
}

// The largest number is charged to a window as far as Redis can count, and the window ends.
//
// Fault 101: units are charged above the limit.
func TestChargeOfTheMost(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		for _, r := range []*limit.Rule{sliding(t, 10, time.Hour, 10), fixed(t, 10, time.Hour), daily(t, 10), funnel(t, 10, 10, time.Hour)} {
			for range 3 {
				if got, err := l.Charge(ctx, "most", r, math.MaxInt64); err != nil || got < 0 || got > arith.MaxUnits {
					t.Errorf("%v: %d units charged, %v", r, got, err)
				}
			}
			if res, err := l.Peek(ctx, "most", r); err != nil || res.Allowed || res.RetryAfter <= 0 || res.RetryAfter > 2*r.Period() {
				t.Errorf("%v: %+v, %v", r, res, err)
			}
		}
		b.everyKeyExpires()
	})
}
