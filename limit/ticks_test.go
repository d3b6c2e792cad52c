package limit

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Ticks count the same as spans, and no funnel has longer ones.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		capacity, units int64
		per             time.Duration
		want            arith.Ticks // but for Most
	}{
		{10, 10, time.Second, arith.Ticks{PerNS: 1, One: 100_000_000, Full: 1_000_000_000}},
		{1000, 30, time.Second, arith.Ticks{PerNS: 3, One: 100_000_000, Full: 100_000_000_000}},
		{5, 7, 3, arith.Ticks{PerNS: 7, One: 3, Full: 15}},
		{5, 3_000_000_000, time.Second, arith.Ticks{PerNS: 3, One: 1, Full: 5}},
		{0, 1, time.Hour, arith.Ticks{PerNS: 1, One: int64(time.Hour)}},
	} {
		r := Must(Funnel("r", c.capacity, c.units, c.per))
		got := r.Ticks()
		if c.want.Most = got.Most; got != c.want {
			t.Errorf("%v: %+v, want %+v", r, got, c.want)
		}
		if got != r.DryRun().Ticks() {
			t.Errorf("%v: dry %+v", r, r.DryRun().Ticks())
		}
	}
	for _, r := range []*Rule{{}, Must(SlidingWindow("w", 5, time.Second)), Must(Funnel("too large", MaxUnits, MaxUnits, time.Second+1))} {
		if got := r.Ticks(); got != (arith.Ticks{}) {
			t.Errorf("%v: %+v", r, got)
		}
		if _, ok := r.ToTicks(arith.Span{NS: 1}); ok {
			t.Errorf("%v: counts in ticks", r)
		}
	}
}

// In ticks a funnel decides as it does in spans, whatever its numbers are.
func TestTicksAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	counted := 0
	for range 3000 {
		draw := func(bits int) int64 { return rng.Int64N(1<<(1+rng.IntN(bits))) + 1 }
		r, err := Funnel("r", draw(30), draw(40), time.Duration(draw(45)))
		if err != nil || r.Ticks() == (arith.Ticks{}) {
			continue
		}
		counted++
		k := r.Ticks()
		if sum := new(big.Int).Mul(big.NewInt(k.Most), big.NewInt(k.PerNS)); sum.Add(sum, big.NewInt(2*k.Full+k.One)).Cmp(big.NewInt(math.MaxInt64)) > 0 {
			t.Fatalf("%v: %+v wraps", r, k)
		}
		now := min(draw(60), k.Most/2)
		span, ticks := arith.Span{NS: now}, now*k.PerNS
		for range 50 {
			now = min(now+draw(20), k.Most)
			at := arith.Span{NS: now}
			next, n := r.Add(span.Max(at), r.One()), max(ticks, now*k.PerNS)+k.One
			fits := !r.Add(at, r.Full()).Less(next)
			if got := n <= now*k.PerNS+k.Full; got != fits {
				t.Fatalf("%v at %d: %v in ticks, %v in spans", r, now, got, fits)
			}
			if fits {
				span, ticks = next, n
				if got, want := r.TicksResult(ticks-now*k.PerNS), r.FunnelResult(true, 1, 1, r.Sub(span, at)); got != want {
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
	r := Must(Funnel("r", 10, 4, 6))
	if got, want := r.TicksResult(0), r.FunnelResult(true, 1, 1, arith.Span{}); got != want {
		t.Errorf("empty: %+v, want %+v", got, want)
	}
	if counted < 1000 {
		t.Errorf("%d funnels", counted)
	}
}

// What is no whole number of ticks, or too large for one, is not taken for one.
func TestTicksOfOddSpans(t *testing.T) {
	r := Must(Funnel("r", 10, 4, 6)) // 1.5 ns: ticks of half a nanosecond, Rem in quarters
	for s, want := range map[arith.Span]bool{
		{NS: 5}: true, {NS: 5, Rem: 2}: true, {NS: 5, Rem: 1}: false, {NS: -1}: false,
		{NS: math.MaxInt64}: false, {NS: math.MaxInt64/2 - 1}: true, {NS: math.MaxInt64 / 2}: false,
	} {
		if _, ok := r.ToTicks(s); ok != want {
			t.Errorf("%+v: %v, want %v", s, ok, want)
		}
	}
}
