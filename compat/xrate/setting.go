package xrate

import (
	"math"
	"math/bits"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// setting is the rate and the burst of a Limiter, as they were set, and what they mean. It does not change.
type setting struct {
	rate      rate.Limit
	burst     int
	unlimited bool
	rule      *limit.Rule
	tokens    tokens // of the rule
}

// tokens are the numbers of a token bucket: it holds burst tokens, and gets refill tokens in each period.
type tokens struct {
	refill, burst int64
	per           time.Duration
}

// initial is the refill of a Limiter that has never had a rate: any will do, as it admits all or nothing.
var initial = tokens{refill: 1, per: time.Second}

// with returns a setting of another rate and burst. A rate that admits nothing, and [rate.Inf], keep the
// refill that s has, so that the bucket goes on as before when there is a rate again: another refill
// re-expresses what was used.
func (s *setting) with(name string, r rate.Limit, burst int) (*setting, error) {
	is := &setting{rate: r, burst: burst, unlimited: r >= rate.Inf, tokens: s.tokens}
	is.tokens.burst = int64(burst)
	if !is.unlimited {
		if refill, per, ok := fraction(float64(r)); ok {
			is.tokens.refill, is.tokens.per = refill, per
		} else {
			is.tokens.burst = 0
		}
	}
	is.tokens.burst = min(max(is.tokens.burst, 0), fillable(is.tokens))
	var err error
	is.rule, err = limit.TokenBucket(name, is.tokens.refill, is.tokens.per, is.tokens.burst)
	return is, err
}

// free reports whether n events need no tokens.
func (s *setting) free(n int) bool { return s.unlimited && n >= 0 }

// tokensAfter returns how many tokens there will be after d, if res describes the bucket now.
func (s *setting) tokensAfter(d time.Duration, res limit.Result) float64 {
	most, whole := float64(s.rule.Limit()), float64(res.Remaining)
	if most == 0 {
		return 0
	}
	each := float64(s.tokens.refill) / s.tokens.per.Seconds()
	// A bucket with as many tokens as it holds has nothing to reset. It has fewer than none while
	// that takes longer than to fill it.
	left := most - each*res.ResetAfter.Seconds()
	switch {
	case left >= whole+1: // the limiter admits less than the bucket holds, as in an outage
		left = whole
	case whole > 0 && left < whole: // ResetAfter is rounded up, or the limiter admits more
		left = whole
	}
	return min(left+each*d.Seconds(), most)
}

// fillable returns the largest burst that comes within [arith.MaxWindow].
func fillable(t tokens) int64 {
	hi, lo := bits.Mul64(uint64(arith.MaxWindow), uint64(t.refill))
	if hi >= uint64(t.per) {
		return arith.MaxUnits
	}
	n, _ := bits.Div64(hi, lo, uint64(t.per))
	return int64(min(n, arith.MaxUnits))
}

// closeEnough is the relative error of a rate as a fraction. The smaller the numbers of a fraction, the longer a
// bucket can be counted in its parts.
const closeEnough = 1e-12

// exactly is the relative error of a rate such as rate.Every(3*time.Second), which is a quotient itself.
const exactly = 0x1p-51

// fraction returns a rate in events per second as a number of events per time, as a person would write it: a
// whole number of events per second, or one event per whole number of nanoseconds, or else the simplest
// fraction that is close enough. ok is false if the rate admits nothing: it is not above 0, or less than one
// event in [arith.MaxWindow].
func fraction(perSecond float64) (refill int64, per time.Duration, ok bool) {
	each := float64(time.Second) / perSecond // ns for one
	switch {
	case !(each > 0 && each <= float64(arith.MaxWindow)):
		return 0, 0, false
	case perSecond == math.Floor(perSecond) && perSecond <= arith.MaxUnits:
		return int64(perSecond), time.Second, true
	}
	for _, unit := range [...]float64{float64(time.Second), 1} { // above 104 days a float64 is no longer exact to a ns
		if whole := math.Round(each/unit) * unit; math.Abs(each-whole) <= exactly*each {
			return 1, time.Duration(whole), true
		}
	}
	p, q := simplest(perSecond / float64(time.Second))
	if q == 0 {
		return arith.MaxUnits, 1, true // more in a nanosecond than a rule can say
	}
	refill, per = int64(p), time.Duration(q)
	if times := time.Second / per; time.Second%per == 0 && refill <= arith.MaxUnits/int64(times) {
		return refill * int64(times), time.Second, true
	}
	return refill, per, true
}

// simplest returns the first convergent p/q of the continued fraction of x that is close enough to it, or the
// last one whose numbers a rule can have. q is 0 if there is none, because x is too large.
func simplest(x float64) (p, q float64) {
	p, q = 1, 0
	for y, p0, q0 := x, 0.0, 1.0; ; {
		a := math.Floor(y)
		p1, q1 := a*p+p0, a*q+q0
		if p1 > arith.MaxUnits || q1 > float64(arith.MaxWindow) {
			return p, q
		}
		p0, q0, p, q = p, q, p1, q1
		if math.Abs(p/q-x) <= closeEnough*x || y == a {
			return p, q
		}
		y = 1 / (y - a)
	}
}
