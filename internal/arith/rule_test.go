package arith

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leakyBucket is a rule by pointer, as limiters have it.
func leakyBucket(capacity, units int64, per time.Duration) *Rule {
	r := Bucket("f", units, per, capacity)
	return &r
}

func window(limit int64, window time.Duration, buckets int) *Rule {
	r := Window(SlidingWindow, "w", limit, window, buckets, buckets)
	return &r
}

// A difference of spans is exact whichever of the two is later: added to the earlier
// one it gives the later one.
func TestDiff(t *testing.T) {
	r := leakyBucket(10, 7, time.Second)
	for _, a := range []Span{{}, {NS: 5, Rem: 3}, {NS: 5, Rem: 6}, {NS: 1 << 60, Rem: 1}} {
		for _, b := range []Span{{}, {NS: 5, Rem: 3}, {NS: 4, Rem: 6}, {NS: 1 << 61, Rem: 2}} {
			d := r.Diff(a, b)
			if d.Rem < 0 || d.Rem >= 7 || (d.NS < 0) != a.Less(b) || r.Add(d, b) != a {
				t.Errorf("%v - %v is %v", a, b, d)
			}
		}
	}
	if d := r.Diff(Span{NS: math.MinInt64}, Span{NS: 1}); d.NS != math.MinInt64 {
		t.Errorf("it wraps: %v", d)
	}
}

// Fault 46: a window that is no whole number of µs is rounded up.
func TestWidthCoversTheWindow(t *testing.T) {
	for _, w := range []time.Duration{time.Second / 3, time.Millisecond, 7 * time.Second, 1234567891} {
		for _, b := range []int{1, 3, 10, 1000} {
			r := window(1, w, b)
			total := r.Width * time.Duration(b)
			if r.Width%time.Microsecond != 0 || total < w || total-w >= time.Duration(b)*time.Microsecond {
				t.Errorf("%v in %d buckets: width %v", w, b, r.Width)
			}
		}
	}
}

func TestCostIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		units, per := 1+rng.Int64N(1<<uint(1+rng.IntN(52))), time.Duration(1+rng.Int64N(1<<uint(1+rng.IntN(60))))
		r := &Rule{Units: units, Period: per, Limit: MaxUnits}
		n := rng.Int64N(1 << uint(1+rng.IntN(52)))
		want := new(big.Rat).Mul(big.NewRat(n, 1), big.NewRat(int64(per), units))
		got := r.Cost(n)
		if got.NS == MaxSpan {
			if want.Cmp(big.NewRat(MaxSpan, 1)) < 0 {
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
		if got.NS < MaxSpan/4 && r.Sub(twice, got) != got {
			t.Fatalf("a + a − a = %+v, want %+v", r.Sub(twice, got), got)
		}
	}
}

// Fault 44: times saturate.
func TestSpanSaturates(t *testing.T) {
	r := leakyBucket(5, 1, time.Second)
	top := Span{NS: math.MaxInt64}
	if s := r.Add(top, r.Cost(5)); s.NS < top.NS {
		t.Errorf("MaxInt64 + 5 s wrapped to %+v", s)
	}
	if s := r.Cost(math.MaxInt64); s.NS != MaxSpan {
		t.Errorf("cost of MaxInt64 units: %+v", s)
	}
	if s := r.Sub(Span{}, r.Cost(1)); s != (Span{}) {
		t.Errorf("0 − 1 s = %+v", s)
	}
}

// Fault 44: multiplied units saturate.
func TestMultiplied(t *testing.T) {
	r := window(10, time.Second, 10)
	for _, c := range [][3]int64{{1, 3, 3}, {4, 3, 10}, {1, 1 << 60, 10}, {0, 5, 0}, {11, 3, 11}, {3, 1, 3}, {math.MaxInt64, 7, math.MaxInt64}} {
		if got := r.Multiplied(c[0], c[1]); got != c[2] {
			t.Errorf("Multiplied(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// Ticks count the same as spans, and no leaky bucket has longer ones.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		capacity, units int64
		per             time.Duration
		want            Ticks // but for Most
	}{
		{10, 10, time.Second, Ticks{PerNS: 1, One: 100_000_000, Full: 1_000_000_000}},
		{1000, 30, time.Second, Ticks{PerNS: 3, One: 100_000_000, Full: 100_000_000_000}},
		{5, 7, 3, Ticks{PerNS: 7, One: 3, Full: 15}},
		{5, 3_000_000_000, time.Second, Ticks{PerNS: 3, One: 1, Full: 5}},
		{0, 1, time.Hour, Ticks{PerNS: 1, One: int64(time.Hour)}},
	} {
		r := leakyBucket(c.capacity, c.units, c.per)
		got := r.Ticks
		if c.want.Most = got.Most; got != c.want {
			t.Errorf("%v: %+v, want %+v", r, got, c.want)
		}
	}
	for _, r := range []*Rule{{}, window(5, time.Second, 10), leakyBucket(MaxUnits, MaxUnits, time.Second+1)} {
		if got := r.Ticks; got != (Ticks{}) {
			t.Errorf("%v: %+v", r, got)
		}
		if _, ok := r.ToTicks(Span{NS: 1}); ok {
			t.Errorf("%v: counts in ticks", r)
		}
	}
}

// What is no whole number of ticks, or too large for one, is not taken for one.
func TestTicksOfOddSpans(t *testing.T) {
	r := leakyBucket(10, 4, 6) // 1.5 ns: ticks of half a nanosecond, Rem in quarters
	for s, want := range map[Span]bool{
		{NS: 5}: true, {NS: 5, Rem: 2}: true, {NS: 5, Rem: 1}: false, {NS: -1}: false,
		{NS: math.MaxInt64}: false, {NS: math.MaxInt64/2 - 1}: true, {NS: math.MaxInt64 / 2}: false,
	} {
		if _, ok := r.ToTicks(s); ok != want {
			t.Errorf("%+v: %v, want %v", s, ok, want)
		}
	}
}
