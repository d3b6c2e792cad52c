package decision

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// In ticks a leaky bucket decides as it does in spans, whatever its numbers are.
func TestTicksAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	counted := 0
	for range 3000 {
		draw := func(bits int) int64 { return rng.Int64N(1<<(1+rng.IntN(bits))) + 1 }
		rule, err := limit.Funnel("r", draw(30), draw(40), time.Duration(draw(45)))
		if err != nil || arith.Of(rule).Ticks == (arith.Ticks{}) {
			continue
		}
		r := arith.Of(rule)
		counted++
		k := r.Ticks
		if sum := new(big.Int).Mul(big.NewInt(k.Most), big.NewInt(k.PerNS)); sum.Add(sum, big.NewInt(2*k.Full+k.One)).Cmp(big.NewInt(math.MaxInt64)) > 0 {
			t.Fatalf("%v: %+v wraps", r, k)
		}
		now := min(draw(60), k.Most/2)
		span, ticks := arith.Span{NS: now}, now*k.PerNS
		for range 50 {
			now = min(now+draw(20), k.Most)
			at := arith.Span{NS: now}
			next, n := r.Add(span.Max(at), r.Cost(1)), max(ticks, now*k.PerNS)+k.One
			fits := !r.Add(at, r.Full).Less(next)
			if got := n <= now*k.PerNS+k.Full; got != fits {
				t.Fatalf("%v at %d: %v in ticks, %v in spans", r, now, got, fits)
			}
			if fits {
				span, ticks = next, n
				if got, want := Ticks(r, ticks-now*k.PerNS), LeakyBucket(r, true, 1, 1, r.Sub(span, at)); got != want {
					t.Fatalf("%v with %d ticks: %+v, want %+v", r, ticks-now*k.PerNS, got, want)
				}
			}
			if got := r.OfTicks(ticks); got != span {
				t.Fatalf("%v: %d ticks are %+v, want %+v", r, ticks, got, span)
			}
			if got, ok := r.ToTicks(span); !ok || got != ticks {
				t.Fatalf("%v: %+v is %d ticks (%v), want %d", r, span, got, ok, ticks)
			}
		}
	}
	r := arith.Of(limit.Must(limit.Funnel("r", 10, 4, 6)))
	if got, want := Ticks(r, 0), LeakyBucket(r, true, 1, 1, arith.Span{}); got != want {
		t.Errorf("empty: %+v, want %+v", got, want)
	}
	if counted < 1000 {
		t.Errorf("%d leaky buckets", counted)
	}
}

// A window says when there will be room, and when it is as if never used.
func TestWindowWaits(t *testing.T) {
	const sec = int64(time.Second)
	r := arith.Of(limit.Must(limit.SlidingWindow("w", 100, 10*time.Second)))
	counts, last := make([]int64, 11), make([]int64, 11)
	counts[9], last[9] = 60, sec*6/10 // the next to leave: 10 of them before the last
	counts[3], last[3] = 40, sec/2
	for _, c := range []struct {
		n    int64
		wait time.Duration
	}{
		{1, 750*time.Millisecond + 1}, // of 60 units 600/59 ms apart: the first came just after the beginning
		{11, 1350 * time.Millisecond}, // with the last
		{60, 1350 * time.Millisecond},
		{61, 6750*time.Millisecond + 1}, // the first of the others
		{100, 7250 * time.Millisecond},
	} {
		res := window(r, false, c.n, 1, counts, last, 250*time.Millisecond)
		if d := res.RetryAfter - c.wait; d < -2 || d > 2 {
			t.Errorf("%d units after %v, want %v", c.n, res.RetryAfter, c.wait)
		}
		if res.ResetAfter != 7250*time.Millisecond || res.Remaining != 0 {
			t.Errorf("%+v", res)
		}
	}
	if res := window(r, false, 101, 1, counts, last, 0); res.RetryAfter != limit.Never || math.MaxInt64 != int64(limit.Never) {
		t.Errorf("%+v", res)
	}
}

// window is Buckets of a window that has a number for each bucket, the current one first.
func window(r *arith.Rule, allowed bool, n, multiplier int64, counts, last []int64, elapsed time.Duration) limit.Result {
	return Buckets(r, n, multiplier, allowed, &Window{Len: len(counts), Elapsed: elapsed, Bucket: func(i int) (age int, units, at int64) { return i, counts[i], last[i] }})
}

// Faults 44, 45, 46: any number is rejected or gives sensible results.
func FuzzRuleNumbers(f *testing.F) {
	f.Add("x", int64(10), int64(5), int64(time.Second), 10, int64(3))
	f.Add("", int64(-1), int64(0), int64(0), 0, int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, name string, a, b, d int64, buckets int, n int64) {
		for _, mk := range []func() (*limit.Rule, error){
			func() (*limit.Rule, error) { return limit.Funnel(name, a, b, time.Duration(d)) },
			func() (*limit.Rule, error) { return limit.SlidingWindowBuckets(name, a, time.Duration(d), buckets) },
			func() (*limit.Rule, error) { return limit.FixedWindow(name, a, time.Duration(d)) },
			func() (*limit.Rule, error) { return limit.SlidingLog(name, a, time.Duration(d)) },
		} {
			r, err := mk()
			if (r == nil) == (err == nil) {
				t.Fatalf("rule %v and error %v", r, err)
			}
			if r == nil {
				continue
			}
			is := arith.Of(r)
			if is.Horizon() < 0 || is.Cost(n).NS < 0 || is.Full.NS < 0 {
				t.Fatalf("%v: negative time", r)
			}
			if r.Algorithm() == limit.AlgorithmFunnel {
				res := LeakyBucket(is, n%2 == 0, n, 1, is.Cost(n))
				check(t, r, res)
				continue
			}
			counts, last := make([]int64, is.Kept+1), make([]int64, is.Kept+1)
			for i := range counts {
				counts[i] = max(n>>uint(i%60), 0)
				last[i] = int64(is.Width) / (1 + (d+n)&7)
			}
			check(t, r, window(is, n%2 == 0, n, 1, counts, last, is.Width/3))
		}
	})
}

func check(t *testing.T, r *limit.Rule, res limit.Result) {
	if res.Remaining < 0 || res.Remaining > r.Limit() || res.RetryAfter < 0 || res.ResetAfter < 0 {
		t.Fatalf("%v: %+v", r, res)
	}
	if res.Allowed == (res.RetryAfter != 0) {
		t.Fatalf("%v: allowed and RetryAfter disagree: %+v", r, res)
	}
}

func TestJudged(t *testing.T) {
	rule := limit.Must(limit.Funnel("api", 10, 1, time.Second))
	d := rule.DryRun()
	refusal := limit.Result{Limit: 10, RetryAfter: time.Second}
	if got := Judged(d, refusal); !got.Allowed || !got.WouldRefuse || got.RetryAfter != time.Second {
		t.Errorf("%+v", got)
	}
	if got := Judged(rule, refusal); got != refusal {
		t.Errorf("%+v", got)
	}
	if got := Judged(d, limit.Result{Allowed: true}); got.WouldRefuse {
		t.Errorf("%+v", got)
	}
}
