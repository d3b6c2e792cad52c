package limit

import (
	"math"
	"math/bits"
	"time"
)

// Span is an exact length of time, or an instant counted from a clock's
// origin: NS whole nanoseconds plus Rem/u of another, where u is the number of
// units that the funnel it belongs to leaks per period, 0 ≤ Rem < u. Spans of
// rules with different u must not be mixed. The zero Span is no time at all.
type Span struct {
	NS, Rem int64
}

// maxSpan is where spans saturate, 146 years. An instant (below 2^61 for
// decades to come) plus a saturated span still fits in an int64.
const maxSpan = math.MaxInt64 / 2

// Less reports whether s is shorter (or earlier) than o.
func (s Span) Less(o Span) bool { return s.NS < o.NS || s.NS == o.NS && s.Rem < o.Rem }

// Max returns the longer (or later) of s and o.
func (s Span) Max(o Span) Span {
	if s.Less(o) {
		return o
	}
	return s
}

// ceil returns the span in nanoseconds, rounded up.
func (s Span) ceil() int64 {
	if s.Rem > 0 {
		return s.NS + 1
	}
	return s.NS
}

// Ceil returns the span rounded up to whole nanoseconds.
func (s Span) Ceil() time.Duration { return time.Duration(s.ceil()) }

// Cost returns n times the period divided by the units of a funnel: what n
// units add to the time at which it runs empty. It saturates, and is zero for
// n ≤ 0.
func (r *Rule) Cost(n int64) Span {
	if n == 1 && r.full != (Span{}) {
		return r.one
	}
	if n <= 0 || r.units <= 0 {
		return Span{}
	}
	hi, lo := bits.Mul64(uint64(n), uint64(r.period))
	if hi >= uint64(r.units) {
		return Span{NS: maxSpan}
	}
	q, rem := bits.Div64(hi, lo, uint64(r.units))
	if q >= maxSpan {
		return Span{NS: maxSpan}
	}
	return Span{NS: int64(q), Rem: int64(rem)}
}

// One returns the cost of one unit of a funnel.
func (r *Rule) One() Span { return r.one }

// Full returns the cost of a whole capacity.
func (r *Rule) Full() Span { return r.full }

// Ticks is the arithmetic of a funnel in whole numbers: of a length of time that
// goes into a nanosecond PerNS times, and of which a unit costs One and a whole
// capacity Full. Lengths of up to Most ns can be counted in it. The zero
// Ticks is that of a funnel whose numbers are too large for it, or of no funnel.
type Ticks struct {
	PerNS, One, Full, Most int64
}

// Ticks returns the longest ticks that a funnel can be counted in.
func (r *Rule) Ticks() Ticks { return r.ticks }

// inTicks computes what Ticks returns.
func (r *Rule) inTicks() Ticks {
	common := gcd(r.units, int64(r.period))
	t := Ticks{PerNS: r.units / common, One: int64(r.period) / common}
	if hi, full := bits.Mul64(uint64(t.One), uint64(r.limit)); hi == 0 && full < maxSpan {
		t.Full = int64(full)
		// A level of twice the capacity still fits.
		t.Most = (math.MaxInt64 - 2*t.Full - t.One) / t.PerNS
		return t
	}
	return Ticks{}
}

// ToTicks converts a span of the rule to its ticks. It reports whether they are a
// whole number, and not too large for one.
func (r *Rule) ToTicks(s Span) (n int64, ok bool) {
	t := r.ticks
	if t.PerNS == 0 || s.NS < 0 || s.NS >= math.MaxInt64/t.PerNS {
		return 0, false
	}
	each := r.units / t.PerNS // of Rem in a tick
	return s.NS*t.PerNS + s.Rem/each, s.Rem%each == 0
}

// OfTicks is the inverse of ToTicks.
func (r *Rule) OfTicks(n int64) Span {
	per := r.ticks.PerNS
	return Span{NS: n / per, Rem: n % per * (r.units / per)}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Add returns a + b. It saturates rather than wraps. b must not be negative.
func (r *Rule) Add(a, b Span) Span {
	s := Span{NS: a.NS + b.NS, Rem: a.Rem + b.Rem}
	if s.Rem >= r.units {
		s.Rem -= r.units
		s.NS++
	}
	if s.NS < a.NS {
		return Span{NS: math.MaxInt64}
	}
	return s
}

// Sub returns a − b, or the zero Span if that would be negative.
func (r *Rule) Sub(a, b Span) Span {
	if !b.Less(a) {
		return Span{}
	}
	s := Span{NS: a.NS - b.NS, Rem: a.Rem - b.Rem}
	if s.Rem < 0 {
		s.Rem += r.units
		s.NS--
	}
	return s
}

// Diff returns a − b, which is negative if b is later: Rem is not, even then. It
// saturates rather than wraps.
func (r *Rule) Diff(a, b Span) Span {
	if !a.Less(b) {
		return r.Sub(a, b)
	}
	s := Span{NS: a.NS - b.NS, Rem: a.Rem - b.Rem}
	if s.NS >= 0 && a.NS < b.NS {
		return Span{NS: math.MinInt64}
	}
	if s.Rem < 0 {
		s.Rem += r.units
		s.NS--
	}
	return s
}

// Whole returns how many whole units a span is worth in a funnel, at most
// [MaxUnits].
func (r *Rule) Whole(s Span) int64 {
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
