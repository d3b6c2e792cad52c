package counter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Fault 44: idle for years, and the largest numbers.
func TestFunnelExtremes(t *testing.T) {
	for _, r := range []*limit.Rule{
		funnelRule(t, 1, 1, 30*24*time.Hour),
		funnelRule(t, 1000, 10_000_000, time.Second),
		funnelRule(t, limit.MaxUnits, limit.MaxUnits, time.Hour),
	} {
		c := NewAlone("k", r, nil, 0)
		if ok, _, _ := c.allow(0, r.Limit(), r); !ok {
			t.Fatalf("%v: the capacity was refused to an empty funnel", r)
		}
		if ok, _, _ := c.allow(0, r.Limit(), r); ok {
			t.Fatalf("%v: twice the capacity was admitted", r)
		}
		res, _ := c.take(0, math.MaxInt64, r)
		if res.Allowed || res.RetryAfter != limit.Never || res.Remaining < 0 {
			t.Fatalf("%v: n = MaxInt64: %+v", r, res)
		}
		years := int64(150 * 365 * 24 * time.Hour) // idle for very long
		if ok, _, _ := c.allow(years, 1, r); !ok {
			t.Fatalf("%v: refused after 150 idle years", r)
		}
		if ok, _, _ := c.allow(math.MaxInt64-1, r.Limit(), r); !ok {
			t.Fatalf("%v: refused at the end of time", r)
		}
	}
}

// Fault 35: an older reading of the clock counts as the newest one.
func TestTimeNeverRunsBackwards(t *testing.T) {
	for _, r := range []*limit.Rule{funnelRule(t, 5, 5, time.Second), windowRule(t, 5, time.Second, 10), windowRule(t, 5, time.Second, 1)} {
		c := NewAlone("k", r, nil, 0)
		now := int64(100 * time.Second)
		for range 5 {
			c.allow(now, 1, r)
		}
		for _, back := range []int64{1, int64(time.Second), int64(90 * time.Second)} {
			if ok, _, _ := c.allow(now-back, 1, r); ok {
				t.Fatalf("%v: a clock %v late got a unit more", r, time.Duration(back))
			}
		}
		res, _ := c.take(now-int64(50*time.Second), 1, r)
		if res.RetryAfter <= 0 || res.RetryAfter > 2*time.Second {
			t.Fatalf("%v: RetryAfter %v after the clock stepped back", r, res.RetryAfter)
		}
	}
}

// TestRetryAfterIsEnough waits exactly as long as the answer says, and one ns less.
//
// Fault 59: waiting as long as the answer says is enough, 1 ns less is not.
func TestRetryAfterIsEnough(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	log, _ := limit.SlidingLog("log", 7, time.Second)
	fixed, _ := limit.FixedWindow("fixed", 7, time.Second)
	rules := []*limit.Rule{
		funnelRule(t, 7, 7, 3*time.Second), windowRule(t, 7, time.Second, 10), windowRule(t, 7, time.Second, 1),
		windowRule(t, 1000, 10*time.Second, 3), log, fixed,
	}
	for _, r := range rules {
		for range 500 {
			c, now := NewAlone("k", r, nil, 0), rng.Int64N(1e12)
			for range 20 {
				now += rng.Int64N(int64(r.Period()) / 10)
				n := 1 + rng.Int64N(r.Limit())
				res, _ := c.take(now, n, r)
				if res.Allowed {
					continue
				}
				if res.RetryAfter <= 0 || res.RetryAfter == limit.Never {
					t.Fatalf("%v: RetryAfter %v for n=%d", r, res.RetryAfter, n)
				}
				if p, _ := c.peek(now, n, r); p != res {
					t.Fatalf("%v: peek %+v, take %+v", r, p, res)
				}
				if res.RetryAfter > 1 {
					if f := c.leaky(); f != nil {
						early := NewAlone("k", r, nil, 0)
						early.last, *early.leaky() = c.last, *f
						if ok, _, _ := early.allow(now+int64(res.RetryAfter)-1, n, r); ok {
							t.Fatalf("%v: RetryAfter %v is too long for n=%d", r, res.RetryAfter, n)
						}
					}
				}
				now += int64(res.RetryAfter)
				if ok, _, _ := c.allow(now, n, r); !ok {
					t.Fatalf("%v: refused after RetryAfter %v for n=%d", r, res.RetryAfter, n)
				}
			}
		}
	}
}

func TestSlidingWindowAgainstReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		r := windowRule(t, 1+rng.Int64N(100), time.Duration(1+rng.Int64N(5000))*time.Millisecond, 1+rng.IntN(12))
		c, ref := NewAlone("k", r, nil, 0), limittest.NewBuckets(r)
		now := rng.Int64N(1e15)
		for range 300 {
			now += rng.Int64N(int64(r.Period()) / 8)
			n := 1 + rng.Int64N(5)
			want := ref.Used(now)+n <= r.Limit()
			res, _ := c.take(now, n, r)
			if res.Allowed != want {
				t.Fatalf("%v at %d n=%d: got %+v, want %v (used %v)", r, now, n, res, want, ref.Used(now))
			}
			if want {
				ref.Add(now, n)
			}
			if left := max(r.Limit()-ref.Used(now), 0); res.Remaining != left {
				t.Fatalf("%v: Remaining %d, want %d", r, res.Remaining, left)
			}
		}
	}
}
