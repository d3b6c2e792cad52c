package local

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A charge counts what does not fit, up to what each algorithm can hold.
//
// Fault 101: units are charged above the limit.
func TestCharge(t *testing.T) {
	for _, r := range callRules() {
		t.Run(r.Algorithm().String(), func(t *testing.T) {
			c := clock.NewManual(start.Truncate(time.Minute))
			l := newLimiter(t, Options{Clock: c})
			// What of 100 units counts on top of 8, and how long until a unit fits.
			want, free := int64(100), time.Minute
			switch r.Algorithm() {
			case limit.AlgorithmFunnel:
				want, free = 12, time.Minute+6*time.Second // the capacity twice: 20 units, 6 s each
			case limit.AlgorithmSlidingLog:
				want = 2
			}
			if !l.AllowN("k", r, 6) {
				t.Fatal("refused")
			}
			if got := l.Charge("k", r, 2); got != 2 {
				t.Fatalf("%d units charged, want 2", got)
			}
			if left := l.Peek("k", r).Remaining; left != 2 {
				t.Fatalf("%d remain, want 2", left)
			}
			if got := l.Charge("k", r, 100); got != want {
				t.Fatalf("%d units charged, want %d", got, want)
			}
			res := l.Peek("k", r)
			if res.Allowed || res.Remaining != 0 {
				t.Fatalf("%+v, want a refusal", res)
			}
			if r.Algorithm() != limit.AlgorithmSlidingWindow && res.RetryAfter != free {
				t.Errorf("a unit fits after %v, want %v", res.RetryAfter, free)
			}
			c.Advance(res.RetryAfter - 1)
			if l.Allow("k", r) {
				t.Error("admitted before the debt was repaid")
			}
			c.Advance(1)
			if !l.Allow("k", r) {
				t.Error("refused when the debt was repaid")
			}
		})
	}
}

// What is charged can be given back, as far as it counts.
func TestChargeAndRefund(t *testing.T) {
	forCallRules(t, func(t *testing.T, l *Limiter, _ *clock.Manual, r *limit.Rule) {
		charged := l.Charge("k", r, 15)
		if back := l.Refund("k", r, charged); back != charged {
			t.Errorf("%d of %d given back", back, charged)
		}
		if left := l.Peek("k", r).Remaining; left != 10 {
			t.Errorf("%d remain", left)
		}
		l.Charge("k", r, 15)
		if back := l.Refund("k", r, math.MaxInt64); back != charged {
			t.Errorf("%d of %d given back", back, charged)
		}
	})
}

// Bad arguments charge nothing, and the largest number does no harm.
func TestChargeOfWhatCannotBe(t *testing.T) {
	forCallRules(t, func(t *testing.T, l *Limiter, c *clock.Manual, r *limit.Rule) {
		for name, got := range map[string]int64{
			"negative": l.Charge("k", r, -1), "smallest": l.Charge("k", r, math.MinInt64), "no rule": l.Charge("k", nil, 1),
			"zero rule": l.Charge("k", new(limit.Rule), 1), "nothing": l.Charge("k", r, 0),
			"nil": (*Limiter)(nil).Charge("k", r, 1), "zero": new(Limiter).Charge("k", r, 1),
		} {
			if got != 0 {
				t.Errorf("%s: %d units charged", name, got)
			}
		}
		if left := l.Peek("k", r).Remaining; left != 10 {
			t.Errorf("%d remain", left)
		}
		for range 3 {
			if got := l.Charge("k", r, math.MaxInt64); got < 0 || got > limit.MaxUnits {
				t.Errorf("%d units charged", got)
			}
		}
		if res := l.Peek("k", r); res.Allowed || res.RetryAfter > 3*time.Minute || res.ResetAfter > 3*time.Minute {
			t.Errorf("%+v", res)
		}
		c.Advance(3 * time.Minute)
		if !l.AllowN("k", r, 10) {
			t.Error("the debt lasts for more than the promise")
		}
	})
	none := limit.Must(limit.Funnel("none", 0, 1, time.Second))
	if got := newLimiter(t, Options{}).Charge("k", none, 5); got != 0 {
		t.Errorf("%d units charged under a limit of 0", got)
	}
}

// A caller that has reserved keeps its time, and so does one that waits.
//
// Fault 101: units are charged above the limit.
func TestChargeBehindReservations(t *testing.T) {
	r := limit.Must(limit.Funnel("f", 10, 10, time.Minute))
	c := clock.NewManual(start)
	l := newLimiter(t, Options{Clock: c})
	l.AllowN("k", r, 10)
	res := l.ReserveN("k", r, 10)
	if !res.OK() || res.Delay() != time.Minute {
		t.Fatalf("%v, %v", res.OK(), res.Delay())
	}
	if got := l.Charge("k", r, 5); got != 0 {
		t.Errorf("%d units charged above what MaxDebt allows", got)
	}
	c.Advance(30 * time.Second)
	if got := l.Charge("k", r, 50); got != 5 {
		t.Errorf("%d units charged, want 5", got)
	}
	if res.Delay() != time.Minute {
		t.Errorf("the reservation is due after %v", res.Delay())
	}
	res.Cancel()
	if left := l.Peek("k", r); left.Allowed || left.RetryAfter != 6*time.Second {
		t.Errorf("%+v, want the 10 units without the reservation", left)
	}
}

// A charge counts for a key that had to leave memory, and for no other.
//
// Fault 101: units are charged above the limit.
func TestChargeOfARememberedKey(t *testing.T) {
	r := limit.Must(limit.SlidingLog("l", 3, time.Hour))
	l := newLimiter(t, Options{MaxKeys: 1, MaxRemembered: 1 << 17, Clock: clock.NewManual(start)})
	fill := func(name string) {
		for i := int64(0); i <= 2*l.Stats().Room; i++ {
			l.AllowN(fmt.Sprint(name, i), r, 3)
		}
	}
	l.AllowN("k", r, 1)
	fill("first")
	if got := l.Charge("k", r, 100); got != 2 || l.Stats().Forgotten == 0 {
		t.Fatalf("%d units charged, want 2: %+v", got, l.Stats())
	}
	fill("second")
	if l.Allow("k", r) {
		t.Error("the charge was forgotten")
	}
	if !l.AllowN("another", r, 3) {
		t.Error("another key has paid for it")
	}
}

// ExampleLimiter_Charge settles the cost of an answer once it is known.
func ExampleLimiter_Charge() {
	lim := limit.Must(New(Options{Clock: clock.NewManual(start)}))
	defer lim.Close()
	tokens := limit.Must(limit.TokenBucket("tokens", limit.Tokens{Burst: 1000, Refill: 1000, Per: time.Minute}))

	const estimate = 300
	if !lim.AllowN("alice", tokens, estimate) {
		return
	}
	used := int64(1100) // the answer was longer than expected
	if used > estimate {
		lim.Charge("alice", tokens, used-estimate)
	} else {
		lim.Refund("alice", tokens, estimate-used)
	}
	fmt.Println(lim.Peek("alice", tokens).RetryAfter)
	// Output: 6.06s
}
