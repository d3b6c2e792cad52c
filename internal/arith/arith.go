// Package arith has the arithmetic of rules. It is exact: the levels of leaky buckets are
// integers with a remainder, so that a rate such as 7 per 3 s does not drift.
package arith

import (
	"math"
	"time"
)

// DefaultBuckets is in how many buckets a sliding window counts that does not say.
const DefaultBuckets = 10

// Span is an exact length of time, or an instant counted from a clock's
// origin: NS whole nanoseconds plus Rem/u of another, where u is the number of
// units that the leaky bucket it belongs to leaks per period, 0 ≤ Rem < u. Spans of
// rules with different u must not be mixed. The zero Span is no time at all.
type Span struct {
	NS, Rem int64
}

// MaxSpan is where spans saturate, 146 years. An instant (below 2^61 for
// decades to come) plus a saturated span still fits in an int64.
const MaxSpan = math.MaxInt64 / 2

// Less reports whether s is shorter (or earlier) than o.
func (s Span) Less(o Span) bool { return s.NS < o.NS || s.NS == o.NS && s.Rem < o.Rem }

// Max returns the longer (or later) of s and o.
func (s Span) Max(o Span) Span {
	if s.Less(o) {
		return o
	}
	return s
}

// Ceil returns the span rounded up to whole nanoseconds.
func (s Span) Ceil() time.Duration {
	if s.Rem > 0 {
		return time.Duration(s.NS + 1)
	}
	return time.Duration(s.NS)
}

// Ticks is the arithmetic of a leaky bucket in whole numbers: of a length of time that
// goes into a nanosecond PerNS times, and of which a unit costs One and a whole
// capacity Full. Lengths of up to Most ns can be counted in it. The zero
// Ticks is that of a leaky bucket whose numbers are too large for it, or of no leaky bucket.
type Ticks struct {
	PerNS, One, Full, Most int64
}
