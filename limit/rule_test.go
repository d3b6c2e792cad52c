package limit

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Faults 45, 46: a bad number is an error that names it.
func TestBadNumbersNameFieldValueAndRule(t *testing.T) {
	year := 365 * 24 * time.Hour
	for _, c := range []struct {
		name  string
		rule  func() (*Rule, error)
		words []string
	}{
		{"negative capacity", func() (*Rule, error) { return Funnel("api", -1, 1, time.Second) }, []string{"api", "capacity", "-1"}},
		{"capacity above 2^53", func() (*Rule, error) { return Funnel("api", MaxUnits+1, 1, time.Second) }, []string{"api", "capacity", "9007199254740993"}},
		{"no units", func() (*Rule, error) { return Funnel("api", 1, 0, time.Second) }, []string{"api", "units", "0"}},
		{"units above 2^53", func() (*Rule, error) { return Funnel("api", 1, math.MaxInt64, time.Second) }, []string{"units"}},
		{"zero per", func() (*Rule, error) { return Funnel("api", 1, 1, 0) }, []string{"api", "per", "0s"}},
		{"negative per", func() (*Rule, error) { return Funnel("api", 1, 1, -time.Second) }, []string{"per", "-1s"}},
		{"per of 200 years", func() (*Rule, error) { return Funnel("api", 1, 1, 200*year) }, []string{"per"}},
		{"drains for ever", func() (*Rule, error) { return Funnel("api", MaxUnits, 1, time.Hour) }, []string{"api", "capacity", "drain"}},
		{"negative limit", func() (*Rule, error) { return SlidingWindow("api", -5, time.Second) }, []string{"api", "limit", "-5"}},
		{"no window", func() (*Rule, error) { return SlidingWindow("api", 5, 0) }, []string{"api", "window", "0s"}},
		{"window of 1 ns", func() (*Rule, error) { return FixedWindow("api", 5, 1) }, []string{"window", "1ns"}},
		{"window of 101 years", func() (*Rule, error) { return FixedWindow("api", 5, 101*year) }, []string{"window"}},
		{"negative window", func() (*Rule, error) { return SlidingLog("api", 5, -time.Second) }, []string{"window", "-1s"}},
		{"no buckets", func() (*Rule, error) { return SlidingWindowBuckets("api", 5, time.Second, 0) }, []string{"buckets", "0"}},
		{"too many buckets", func() (*Rule, error) { return SlidingWindowBuckets("api", 5, time.Second, 1001) }, []string{"buckets", "1001"}},
		{"huge log", func() (*Rule, error) { return SlidingLog("api", maxLogLimit+1, time.Second) }, []string{"limit", "1000001"}},
		{"no name", func() (*Rule, error) { return FixedWindow("", 5, time.Second) }, []string{"name"}},
		{"long name", func() (*Rule, error) { return FixedWindow(strings.Repeat("x", 300), 5, time.Second) }, []string{"name", "300"}},
		{"two at once", func() (*Rule, error) { return FixedWindow("", -1, 0) }, []string{"name", "limit", "window"}},
	} {
		r, err := c.rule()
		if err == nil || r != nil {
			t.Errorf("%s: accepted as %v", c.name, r)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not name %q", c.name, err, w)
			}
		}
	}
}

// Faults 45, 46: the largest and smallest that are allowed.
func TestGoodNumbers(t *testing.T) {
	for _, f := range []func() (*Rule, error){
		func() (*Rule, error) { return Funnel("x", 0, 1, time.Second) },
		func() (*Rule, error) { return Funnel("x", 1, 1, 30*24*time.Hour) },
		func() (*Rule, error) { return Funnel("x", 10, 10_000_000, time.Second) },
		func() (*Rule, error) { return Funnel("x", MaxUnits, MaxUnits, time.Second) },
		func() (*Rule, error) { return SlidingWindow("x", MaxUnits, minWindow) },
		func() (*Rule, error) { return SlidingWindow("x", 0, MaxWindow) },
		func() (*Rule, error) { return SlidingLog("x", maxLogLimit, time.Second) },
	} {
		if r, err := f(); err != nil || !r.Valid() || r.String() == "" {
			t.Errorf("%v: %v", r, err)
		}
	}
}

func TestMustPanicsOnError(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Must did not panic")
		}
	}()
	Must(Funnel("", 1, 1, time.Second))
}

func TestZeroAndNilRulesAreInvalid(t *testing.T) {
	var nilRule *Rule
	if nilRule.Valid() || new(Rule).Valid() {
		t.Error("a rule without constructor is valid")
	}
}

// Fault 46: a window that is no whole number of µs is rounded up.
func TestWidthCoversTheWindow(t *testing.T) {
	for _, w := range []time.Duration{time.Second / 3, time.Millisecond, 7 * time.Second, 1234567891} {
		for _, b := range []int{1, 3, 10, 1000} {
			r := Must(SlidingWindowBuckets("x", 1, w, b))
			total := r.Width() * time.Duration(b)
			if r.Width()%time.Microsecond != 0 || total < w || total-w >= time.Duration(b)*time.Microsecond {
				t.Errorf("%v in %d buckets: width %v", w, b, r.Width())
			}
		}
	}
}

func TestCostIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		units, per := 1+rng.Int64N(1<<uint(1+rng.IntN(52))), time.Duration(1+rng.Int64N(1<<uint(1+rng.IntN(60))))
		r := &Rule{alg: AlgorithmFunnel, units: units, period: per, limit: MaxUnits}
		n := rng.Int64N(1 << uint(1+rng.IntN(52)))
		want := new(big.Rat).Mul(big.NewRat(n, 1), big.NewRat(int64(per), units))
		got := r.Cost(n)
		if got.NS == maxSpan {
			if want.Cmp(big.NewRat(maxSpan, 1)) < 0 {
				t.Fatalf("%d × %v/%d saturated at %v", n, per, units, want)
			}
			continue
		}
		is := new(big.Rat).Add(big.NewRat(got.NS, 1), big.NewRat(got.Rem, units))
		if is.Cmp(want) != 0 || got.Rem < 0 || got.Rem >= units {
			t.Fatalf("%d × %v/%d = %+v, want %v", n, per, units, got, want)
		}
		if w := r.Whole(got); w != n {
			t.Fatalf("%d units are worth %d", n, w)
		}
		twice := r.Add(got, got)
		if got.NS < maxSpan/4 && r.Sub(twice, got) != got {
			t.Fatalf("a + a − a = %+v, want %+v", r.Sub(twice, got), got)
		}
	}
}

// Fault 44: times saturate.
func TestSpanSaturates(t *testing.T) {
	r := Must(Funnel("x", 5, 1, time.Second))
	top := arith.Span{NS: math.MaxInt64}
	if s := r.Add(top, r.Cost(5)); s.NS < top.NS {
		t.Errorf("MaxInt64 + 5 s wrapped to %+v", s)
	}
	if s := r.Cost(math.MaxInt64); s.NS != maxSpan {
		t.Errorf("cost of MaxInt64 units: %+v", s)
	}
	if s := r.Sub(arith.Span{}, r.Cost(1)); s != (arith.Span{}) {
		t.Errorf("0 − 1 s = %+v", s)
	}
}

// Fault 44: weighted units saturate.
func TestWeigh(t *testing.T) {
	r := Must(SlidingWindow("x", 10, time.Second))
	for _, c := range [][3]int64{{1, 3, 3}, {4, 3, 10}, {1, 1 << 60, 10}, {0, 5, 0}, {11, 3, 11}, {3, 1, 3}, {math.MaxInt64, 7, math.MaxInt64}} {
		if got := r.Weigh(c[0], c[1]); got != c[2] {
			t.Errorf("Weigh(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// Faults 44, 45, 46: any number is rejected or gives sensible results.
func FuzzRuleNumbers(f *testing.F) {
	f.Add("x", int64(10), int64(5), int64(time.Second), 10, int64(3))
	f.Add("", int64(-1), int64(0), int64(0), 0, int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, name string, a, b, d int64, buckets int, n int64) {
		for _, mk := range []func() (*Rule, error){
			func() (*Rule, error) { return Funnel(name, a, b, time.Duration(d)) },
			func() (*Rule, error) { return SlidingWindowBuckets(name, a, time.Duration(d), buckets) },
			func() (*Rule, error) { return FixedWindow(name, a, time.Duration(d)) },
			func() (*Rule, error) { return SlidingLog(name, a, time.Duration(d)) },
		} {
			r, err := mk()
			if (r == nil) == (err == nil) {
				t.Fatalf("rule %v and error %v", r, err)
			}
			if r == nil {
				continue
			}
			if r.Horizon() < 0 || r.Cost(n).NS < 0 || r.Full().NS < 0 {
				t.Fatalf("%v: negative time", r)
			}
			if r.Algorithm() == AlgorithmFunnel {
				res := r.FunnelResult(n%2 == 0, n, 1, r.Cost(n))
				check(t, r, res)
				continue
			}
			counts, last := make([]int64, r.Kept()+1), make([]int64, r.Kept()+1)
			for i := range counts {
				counts[i] = max(n>>uint(i%60), 0)
				last[i] = int64(r.Width()) / (1 + (d+n)&7)
			}
			check(t, r, r.WindowResult(n%2 == 0, n, 1, counts, last, r.Width()/3))
		}
	})
}

func check(t *testing.T, r *Rule, res Result) {
	if res.Remaining < 0 || res.Remaining > r.Limit() || res.RetryAfter < 0 || res.ResetAfter < 0 {
		t.Fatalf("%v: %+v", r, res)
	}
	if res.Allowed == (res.RetryAfter != 0) {
		t.Fatalf("%v: allowed and RetryAfter disagree: %+v", r, res)
	}
}

func TestErrorsAreDistinct(t *testing.T) {
	all := []error{ErrInvalidN, ErrNilRule, ErrUnsupported, ErrClosed}
	for i, a := range all {
		for j, b := range all {
			if (i == j) != errors.Is(a, b) {
				t.Errorf("%v and %v", a, b)
			}
		}
	}
}

// A token bucket is a funnel: equal rules, and equal errors.
func TestTokenBucketIsFunnel(t *testing.T) {
	for _, c := range []struct {
		burst, refill int64
		per           time.Duration
	}{{10, 3, time.Second}, {0, 1, time.Hour}, {7, 100, time.Millisecond}, {-1, 1, time.Second}, {1, 0, 0}} {
		tokens, err := TokenBucket("t", c.burst, c.refill, c.per)
		funnel, want := Funnel("t", c.burst, c.refill, c.per)
		if (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
			t.Errorf("%+v: %v, want %v", c, err, want)
		} else if err == nil && *tokens != *funnel {
			t.Errorf("%+v: %v, want %v", c, tokens, funnel)
		}
	}
}
