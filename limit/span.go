package limit

import (
	"math"
	"math/bits"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// maxSpan is where spans saturate.
const maxSpan = arith.MaxSpan

// Cost returns n times the period divided by the units of a funnel: what n
// units add to the time at which it runs empty. It saturates, and is zero for
// n ≤ 0.
func (r *Rule) Cost(n int64) arith.Span {
	if n == 1 && r.full != (arith.Span{}) {
		return r.one
	}
	if n <= 0 || r.units <= 0 {
		return arith.Span{}
	}
	hi, lo := bits.Mul64(uint64(n), uint64(r.period))
	if hi >= uint64(r.units) {
		return arith.Span{NS: maxSpan}
	}
	q, rem := bits.Div64(hi, lo, uint64(r.units))
	if q >= maxSpan {
		return arith.Span{NS: maxSpan}
	}
	return arith.Span{NS: int64(q), Rem: int64(rem)}
}

// One returns the cost of one unit of a funnel.
func (r *Rule) One() arith.Span { return r.one }

// Full returns the cost of a whole capacity.
func (r *Rule) Full() arith.Span { return r.full }

// Ticks returns the longest ticks that a funnel can be counted in.
func (r *Rule) Ticks() arith.Ticks { return r.ticks }

// inTicks computes what Ticks returns.
func (r *Rule) inTicks() arith.Ticks {
	common := gcd(r.units, int64(r.period))
	t := arith.Ticks{PerNS: r.units / common, One: int64(r.period) / common}
	if hi, full := bits.Mul64(uint64(t.One), uint64(r.limit)); hi == 0 && full < maxSpan {
		t.Full = int64(full)
		// A level of twice the capacity still fits.
		t.Most = (math.MaxInt64 - 2*t.Full - t.One) / t.PerNS
		return t
	}
	return arith.Ticks{}
}

// ToTicks converts a span of the rule to its ticks. It reports whether they are a
// whole number, and not too large for one.
func (r *Rule) ToTicks(s arith.Span) (n int64, ok bool) {
	t := r.ticks
	if t.PerNS == 0 || s.NS < 0 || s.NS >= math.MaxInt64/t.PerNS {
		return 0, false
	}
	each := r.units / t.PerNS // of Rem in a tick
	return s.NS*t.PerNS + s.Rem/each, s.Rem%each == 0
}

// OfTicks is the inverse of ToTicks.
func (r *Rule) OfTicks(n int64) arith.Span {
	per := r.ticks.PerNS
	return arith.Span{NS: n / per, Rem: n % per * (r.units / per)}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Add returns a + b. It saturates rather than wraps. b must not be negative.
func (r *Rule) Add(a, b arith.Span) arith.Span {
	s := arith.Span{NS: a.NS + b.NS, Rem: a.Rem + b.Rem}
	if s.Rem >= r.units {
		s.Rem -= r.units
		s.NS++
	}
	if s.NS < a.NS {
		return arith.Span{NS: math.MaxInt64}
	}
	return s
}

// Sub returns a − b, or the zero arith.Span if that would be negative.
func (r *Rule) Sub(a, b arith.Span) arith.Span {
	if !b.Less(a) {
		return arith.Span{}
	}
	s := arith.Span{NS: a.NS - b.NS, Rem: a.Rem - b.Rem}
	if s.Rem < 0 {
		s.Rem += r.units
		s.NS--
	}
	return s
}

// Diff returns a − b, which is negative if b is later: Rem is not, even then. It
// saturates rather than wraps.
func (r *Rule) Diff(a, b arith.Span) arith.Span {
	if !a.Less(b) {
		return r.Sub(a, b)
	}
	s := arith.Span{NS: a.NS - b.NS, Rem: a.Rem - b.Rem}
	if s.NS >= 0 && a.NS < b.NS {
		return arith.Span{NS: math.MinInt64}
	}
	if s.Rem < 0 {
		s.Rem += r.units
		s.NS--
	}
	return s
}

// Whole returns how many whole units a span is worth in a funnel, at most
// [MaxUnits].
func (r *Rule) Whole(s arith.Span) int64 {
	if s.NS < 0 || r.period <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(s.NS), uint64(r.units))
	lo, carry := bits.Add64(lo, uint64(s.Rem), 0)
	hi += carry
	if hi >= uint64(r.period) {
		return MaxUnits
	}
	q, _ := bits.Div64(hi, lo, uint64(r.period))
	return int64(min(q, MaxUnits))
}
