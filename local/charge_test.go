package local

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

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
			if got := l.Charge("k", r, math.MaxInt64); got < 0 || got > arith.MaxUnits {
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
}

// A caller that has reserved keeps its time, and so does one that waits.
//
// Fault 101: units are charged above the limit.
func TestChargeBehindReservations(t *testing.T) {
	r := limit.Must(limit.TokenBucket("f", 10, time.Minute, 10))
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
	res.Cancel(bg)
	if left := l.Peek("k", r); left.Allowed || left.RetryAfter != 6*time.Second {
		t.Errorf("%+v, want the 10 units without the reservation", left)
	}
}

// ExampleLimiter_Charge settles the cost of an answer once it is known.
func ExampleLimiter_Charge() {
	lim := limit.Must(New(Options{Clock: clock.NewManual(start)}))
	defer lim.Close()
	tokens := limit.Must(limit.TokenBucket("tokens", 1000, time.Minute, 1000))

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
