package redisstore

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Spans are sent to Lua as whole microseconds and a remainder in 1/D
// microseconds. With D = 1000·units every span of a rule is representable
// exactly. But the sum of two remainders must be within the 2^53 up to which
// doubles are exact, so that D is at most 2^52: spans of a leaky bucket that leaks
// more than 4.5·10^12 units per period are rounded up to 2^-52 µs.
const (
	maxDenominator = 1 << 52
	maxExact       = 1<<53 - 1 // the latest time, in µs
)

// wireSpan is a span as Lua sees it.
type wireSpan struct{ us, rem int64 }

// denominator returns D of a leaky bucket.
func denominator(rule *limit.Rule) int64 {
	if arith.Of(rule).Units > maxDenominator/1000 {
		return maxDenominator
	}
	return 1000 * arith.Of(rule).Units
}

// rateText returns the rate of a leaky bucket for Lua: D, and how many microseconds
// a unit takes, without an exponent, which not every Lua reads. Equal rates give
// equal texts.
func rateText(rule *limit.Rule) string {
	b := strconv.AppendInt(make([]byte, 0, 48), denominator(rule), 10)
	b = append(b, '/')
	return string(strconv.AppendFloat(b, float64(rule.Period())/float64(arith.Of(rule).Units)/1000, 'f', -1, 64))
}

// toWire converts a span. It rounds up where it must.
func toWire(rule *limit.Rule, s arith.Span) wireSpan {
	units, d := uint64(arith.Of(rule).Units), denominator(rule)
	w := wireSpan{us: s.NS / 1000}
	ns := s.NS % 1000
	if ns < 0 { // the rest of a span is never negative
		w.us, ns = w.us-1, ns+1000
	}
	// In 1/(1000·units) µs; below 1000·2^53, which an uint64 holds.
	rem := uint64(ns)*units + uint64(s.Rem)
	if d == maxDenominator {
		rem = scaleUp(rem, maxDenominator, 1000*units)
	}
	if w.rem = int64(rem); w.rem >= d {
		w.us, w.rem = w.us+1, 0
	}
	if w.us > maxExact {
		return wireSpan{us: maxExact}
	}
	if w.us < -maxExact {
		return wireSpan{us: -maxExact}
	}
	return w
}

// fromWire converts back: us is -2^53 to 2^53, rem 0 to below D.
func fromWire(rule *limit.Rule, w wireSpan) arith.Span {
	units := uint64(arith.Of(rule).Units)
	rem := uint64(w.rem) // in 1/(1000·units) µs, that is in 1/units ns
	if denominator(rule) == maxDenominator {
		rem = scaleUp(1000*rem, units, maxDenominator)
	}
	return arith.Span{NS: w.us*1000 + int64(rem/units), Rem: int64(rem % units)}
}

// scaleUp returns n·num/den, rounded up.
func scaleUp(n, num, den uint64) uint64 {
	hi, lo := bits.Mul64(n, num)
	q, rest := bits.Div64(hi, lo, den)
	if rest > 0 {
		q++
	}
	return q
}

// horizonMS returns for how many ms a rule's counter may matter.
func horizonMS(rule *limit.Rule) int64 { return ceilMS(arith.Of(rule).Horizon()) }

// ceilMS returns d in ms, rounded up.
func ceilMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// widthUS returns the length of a window's bucket in µs.
func widthUS(rule *limit.Rule) int64 { return int64(arith.Of(rule).Width / time.Microsecond) }
