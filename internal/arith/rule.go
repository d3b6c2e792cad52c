package arith

import (
	"math"
	"math/bits"
	"time"
)

// Rule is what limiters compute with of a [github.com/hybridlimit/hybridlimit/limit.Rule]:
// its numbers, and the arithmetic that they define. It is part of that rule, shared by all
// its users: never write to it. Build one with [Bucket], [Window] or [Quota]. The methods that take
// or return a [Span] or ticks are for leaky buckets only.
type Rule struct {
	Name      string
	Hash      uint64 // of name and algorithm, the same in every process; different rules may share it
	NameHash  uint64 // of the name alone
	Algorithm Algorithm
	Buckets   int   // sub-buckets of a window, 1 for a fixed window, a calendar or a log, 0 for a token bucket
	Limit     int64 // or the capacity of a leaky bucket, in units
	MadeUp    bool  // a client has made up the rule, and may make up any number of names

	Units  int64         // leaky bucket: units leaked per Period; 0 for all others
	Period time.Duration // leaky bucket: of its leak; otherwise the window as asked for
	Full   Span          // leaky bucket: cost of a whole capacity
	Ticks  Ticks         // leaky bucket: the longest that it can be counted in
	one    Span          // leaky bucket: cost of one unit

	Width time.Duration // window: length of one bucket, whole microseconds; 0 for a leaky bucket
	Kept  int           // sliding window: how many buckets before the current one count, the oldest in part; 0 for all others
	Share int64         // window: limit / buckets, rounded up: how many units more than the limit any window may hold

	Calendar *Calendar // whose periods are the buckets, see [Quota]; nil for all others
}

// Hidden holds a Rule where users cannot reach it. Package limit embeds it in its rules: they
// have its unexported method, and so are what [Of] takes.
type Hidden struct{ rule Rule }

// Hide returns r as a part of a rule of package limit.
func Hide(r Rule) Hidden { return Hidden{r} }

func (h *Hidden) hidden() *Rule { return &h.rule }

// Of returns what limiters compute with of a rule of package limit. The compiler inlines the
// call where the type of the argument is known.
func Of(rule interface{ hidden() *Rule }) *Rule { return rule.hidden() }

// Bounds of the numbers and the name of a rule.
const (
	// MaxUnits is the largest limit, burst or number of units. Redis' Lua computes with doubles, which
	// are exact for integers up to this one.
	MaxUnits = 1 << 53
	// MaxWindow bounds a window, and the time in which a token bucket fills.
	MaxWindow = 100 * 365 * 24 * time.Hour
	// MaxNameBytes bounds the name of a rule.
	MaxNameBytes = 256
)

// Bucket returns the rule of a token bucket that gets units, at least 1, per period. Its
// hashes are set by package limit, as those of [Window] are.
func Bucket(name string, units int64, per time.Duration, burst int64) Rule {
	r := Rule{Name: name, Algorithm: TokenBucket, Limit: burst, Units: units, Period: per}
	r.one, r.Full, r.Ticks = r.Cost(1), r.Cost(burst), r.inTicks()
	return r
}

// Window returns the rule of a window of so many buckets, of which so many are kept.
func Window(a Algorithm, name string, limit int64, window time.Duration, buckets, kept int) Rule {
	step := time.Duration(buckets) * time.Microsecond
	return Rule{
		Name: name, Algorithm: a, Buckets: buckets, Limit: limit, Period: window, Kept: kept, Width: (window + step - 1) / step * time.Microsecond,
		Share: (limit + int64(buckets) - 1) / int64(buckets),
	}
}

// SameShape reports whether r and o count alike: everything but the limit is
// equal, so that a counter may go from one to the other as it is.
func (r *Rule) SameShape(o *Rule) bool {
	return r == o || r.Hash == o.Hash && r.Name == o.Name && r.Units == o.Units &&
		r.Period == o.Period && r.Kept == o.Kept && r.Width == o.Width && (r.Calendar == o.Calendar || r.Calendar.same(o.Calendar))
}

// ShapeHash is equal, in every process, for rules of one name that count alike, see SameShape.
func (r *Rule) ShapeHash() uint32 {
	h := r.Hash
	for _, v := range [...]int64{r.Units, int64(r.Period), int64(r.Kept), int64(r.Width)} {
		h = (h ^ uint64(v)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return uint32(h >> 32)
}

// Horizon returns how long a unit may matter: the time in which a full leaky bucket
// drains, or the window plus one bucket.
func (r *Rule) Horizon() time.Duration {
	if r.Units > 0 {
		return r.Full.Ceil()
	}
	return r.Width * time.Duration(r.Kept+1)
}

// Multiplied returns what n units count as when each counts multiplier times: n·multiplier,
// saturating, but never so much that a request which fits the limit could not
// be admitted by an empty counter.
func (r *Rule) Multiplied(n, multiplier int64) int64 {
	if multiplier == 1 || n <= 0 || n > r.Limit {
		return n
	}
	hi, lo := bits.Mul64(uint64(n), uint64(multiplier))
	if hi != 0 || lo > uint64(r.Limit) {
		return r.Limit
	}
	return int64(lo)
}

// Cost returns n times the period divided by the units of a leaky bucket: what n
// units add to the time at which it runs empty. It saturates, and is zero for
// n ≤ 0.
func (r *Rule) Cost(n int64) Span {
	if n == 1 && r.Full != (Span{}) {
		return r.one
	}
	if n <= 0 || r.Units <= 0 {
		return Span{}
	}
	hi, lo := bits.Mul64(uint64(n), uint64(r.Period))
	if hi >= uint64(r.Units) {
		return Span{NS: MaxSpan}
	}
	q, rem := bits.Div64(hi, lo, uint64(r.Units))
	if q >= MaxSpan {
		return Span{NS: MaxSpan}
	}
	return Span{NS: int64(q), Rem: int64(rem)}
}

// inTicks computes Ticks.
func (r *Rule) inTicks() Ticks {
	common := gcd(r.Units, int64(r.Period))
	t := Ticks{PerNS: r.Units / common, One: int64(r.Period) / common}
	if hi, full := bits.Mul64(uint64(t.One), uint64(r.Limit)); hi == 0 && full < MaxSpan {
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
	t := r.Ticks
	if t.PerNS == 0 || s.NS < 0 || s.NS >= math.MaxInt64/t.PerNS {
		return 0, false
	}
	each := r.Units / t.PerNS // of Rem in a tick
	return s.NS*t.PerNS + s.Rem/each, s.Rem%each == 0
}

// OfTicks is the inverse of ToTicks.
func (r *Rule) OfTicks(n int64) Span {
	per := r.Ticks.PerNS
	return Span{NS: n / per, Rem: n % per * (r.Units / per)}
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
	if s.Rem >= r.Units {
		s.Rem -= r.Units
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
	return r.Diff(a, b)
}

// Diff returns a − b, which is negative if b is later: Rem is not, even then. It
// saturates rather than wraps.
func (r *Rule) Diff(a, b Span) Span {
	s := Span{NS: a.NS - b.NS, Rem: a.Rem - b.Rem}
	if s.NS >= 0 && a.NS < b.NS {
		return Span{NS: math.MinInt64}
	}
	if s.Rem < 0 {
		s.Rem += r.Units
		s.NS--
	}
	return s
}

// Whole returns how many whole units a span is worth in a leaky bucket, at most
// 2^53.
func (r *Rule) Whole(s Span) int64 {
	if s.NS < 0 || r.Period <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(s.NS), uint64(r.Units))
	lo, carry := bits.Add64(lo, uint64(s.Rem), 0)
	hi += carry
	if hi >= uint64(r.Period) {
		return MaxUnits
	}
	q, _ := bits.Div64(hi, lo, uint64(r.Period))
	return int64(min(q, MaxUnits))
}

// WholeUp is Whole, rounded up.
func (r *Rule) WholeUp(s Span) int64 {
	n := r.Whole(s)
	if r.Cost(n).Less(s) {
		n++
	}
	return n
}

// HashName returns the NameHash of a name.
func HashName(name string) uint64 {
	// FNV-1a, written out: every process and version must compute the same hashes.
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}
