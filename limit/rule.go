package limit

import (
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Algorithm names the way in which a rule counts.
type Algorithm uint8

// The algorithms. The zero Algorithm is none of them.
const (
	// AlgorithmFunnel is a leaky bucket stored as the time at which it will be
	// empty: the generic cell rate algorithm (GCRA) of ITU-T I.371. A token bucket
	// is the same algorithm: its tokens are the free room of the leaky bucket.
	AlgorithmFunnel Algorithm = iota + 1
	// AlgorithmSlidingWindow counts in sub-buckets of a window. The oldest one
	// expires gradually. With one bucket it is the two-window approximation.
	AlgorithmSlidingWindow
	// AlgorithmFixedWindow counts in windows aligned to the clock. Up to twice
	// the limit may pass around a boundary, as in every fixed window.
	AlgorithmFixedWindow
	// AlgorithmCalendar counts in the days, weeks or months of a time zone, see [Quota].
	AlgorithmCalendar
	// AlgorithmSlidingLog stores each unit: it is exact, and up to limit units are stored.
	AlgorithmSlidingLog
	// AlgorithmCombined is several limits that hold together, see [Combine].
	AlgorithmCombined
)

// String returns the name of the algorithm in lower case, with dashes.
func (a Algorithm) String() string {
	switch a {
	case AlgorithmFunnel:
		return "token-bucket"
	case AlgorithmSlidingWindow:
		return "sliding-window"
	case AlgorithmFixedWindow:
		return "fixed-window"
	case AlgorithmSlidingLog:
		return "sliding-log"
	case AlgorithmCombined:
		return "combined"
	case AlgorithmCalendar:
		return "calendar"
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// Bounds of the numbers and the name of a rule.
const (
	// MaxUnits is the largest limit, capacity or number of leaked units. Redis' Lua
	// computes with doubles, which are exact for integers up to this one.
	MaxUnits = 1 << 53
	// MaxWindow bounds a window, and the time in which a full leaky bucket drains.
	MaxWindow = 100 * 365 * 24 * time.Hour
	// MaxNameBytes bounds the name of a rule.
	MaxNameBytes = 256

	minWindow   = time.Millisecond
	maxBuckets  = 1000
	maxLogLimit = 1_000_000 // a sliding log keeps one record per unit
)

// Rule is an immutable limit: a name, an algorithm and its numbers. Build one
// with [PerSecond], [PerMinute], [PerHour], [SlidingWindow], [SlidingWindowBuckets],
// [TokenBucket], [Funnel], [FixedWindow], [Quota], [SlidingLog], [Combine] or [Parse]; it is safe to share
// between goroutines and limiters. The zero Rule is not usable: limiters refuse it like a nil one.
//
// The name is a namespace: two rules of the same name and algorithm share the
// counter of a key. So a limit can be changed while it is in use, and keys can have
// different plans, without losing the count: another limit applies to the count as
// it is; another period or number of buckets converts the count, rounded up. A rule
// of another algorithm has its own counters.
type Rule struct {
	numbers
	alg     Algorithm
	buckets int
	dry     bool
	exact   bool
	funnel  bool   // made by Funnel: matters for texts only
	parts   *parts // of a combined rule
}

// numbers are what limiters compute with. Only this module can read them.
type numbers = arith.Hidden

// Funnel describes a leaky bucket that holds capacity units and leaks units per
// period: the generic cell rate algorithm (GCRA). A full leaky bucket must drain
// within [MaxWindow]. [TokenBucket] describes the same limit in tokens.
func Funnel(name string, capacity, units int64, per time.Duration) (*Rule, error) {
	r := &Rule{numbers: arith.Hide(arith.Rule{Name: name}), alg: AlgorithmFunnel, funnel: true}
	return r.leaking("capacity", capacity, "units", units, per)
}

// leaking checks and sets the numbers of a leaky bucket. full and flow are what the
// constructor calls them, for errors.
func (r *Rule) leaking(full string, capacity int64, flow string, units int64, per time.Duration) (*Rule, error) {
	errs := []error{r.checkName(), r.checkUnits(full, capacity, 0), r.checkUnits(flow, units, 1)}
	if per <= 0 || per > MaxWindow {
		errs = append(errs, r.bad("per", per, "must be above 0 and at most %v", MaxWindow))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	*arith.Of(r) = arith.LeakyBucket(arith.Of(r).Name, capacity, units, per)
	if arith.Of(r).Full.NS > int64(MaxWindow) {
		verb := "fill"
		if r.funnel {
			verb = "drain"
		}
		return nil, r.bad(full, capacity, "at %d per %v it would need more than %v to %s", units, per, MaxWindow, verb)
	}
	return r.sealed(), nil
}

// Tokens are the numbers of a token bucket: see [TokenBucket].
type Tokens struct {
	Burst  int64         // tokens that a full bucket holds, in units: 0 to [MaxUnits]
	Refill int64         // tokens that it gets in each Per, in units: 1 to [MaxUnits]
	Per    time.Duration // above 0 and at most [MaxWindow]
}

// TokenBucket describes a token bucket: each unit takes one token. It is the same limit as
// [Funnel], the tokens in the bucket being the room that is left in the leaky bucket. An
// empty bucket must fill within [MaxWindow].
func TokenBucket(name string, t Tokens) (*Rule, error) {
	r := &Rule{numbers: arith.Hide(arith.Rule{Name: name}), alg: AlgorithmFunnel}
	return r.leaking("burst", t.Burst, "refill", t.Refill, t.Per)
}

// PerSecond describes n units in any second: [SlidingWindow] with a window of 1 s.
func PerSecond(name string, n int64) (*Rule, error) { return SlidingWindow(name, n, time.Second) }

// PerMinute describes n units in any minute: [SlidingWindow] with a window of 1 min.
func PerMinute(name string, n int64) (*Rule, error) { return SlidingWindow(name, n, time.Minute) }

// PerHour describes n units in any hour: [SlidingWindow] with a window of 1 h.
func PerHour(name string, n int64) (*Rule, error) { return SlidingWindow(name, n, time.Hour) }

// SlidingWindow describes limit units in a window, counted in 10 sub-buckets. Any
// window, wherever it begins, holds at most the limit and one bucket's share of it:
// limit + ⌈limit/buckets⌉.
func SlidingWindow(name string, limit int64, window time.Duration) (*Rule, error) {
	return SlidingWindowBuckets(name, limit, window, arith.DefaultBuckets)
}

// SlidingWindowBuckets is [SlidingWindow] with the number of sub-buckets given,
// 1 to 1,000. More buckets follow the true window more closely and cost
// more memory and bandwidth. With one bucket the count is that of the
// current window and of the remaining part of the previous one: a window may then
// hold up to twice the limit.
//
// The length of a bucket is rounded up to a whole microsecond, so that the
// window counted may be up to buckets microseconds longer than asked for.
func SlidingWindowBuckets(name string, limit int64, window time.Duration, buckets int) (*Rule, error) {
	return windowRule(AlgorithmSlidingWindow, name, limit, window, buckets, buckets)
}

// FixedWindow describes at most limit units in each window. Windows are aligned to
// the Unix epoch of the clock that decides: Redis' clock if the counter is shared.
// The window is rounded up to a whole microsecond.
func FixedWindow(name string, limit int64, window time.Duration) (*Rule, error) {
	return windowRule(AlgorithmFixedWindow, name, limit, window, 1, 0)
}

// SlidingLog describes at most limit units in any window, exactly: each unit is
// stored until it is one window old. The limit is at most 1,000,000.
// The window is rounded up to a whole microsecond.
func SlidingLog(name string, limit int64, window time.Duration) (*Rule, error) {
	return windowRule(AlgorithmSlidingLog, name, limit, window, 1, 0)
}

func windowRule(alg Algorithm, name string, limit int64, window time.Duration, buckets, kept int) (*Rule, error) {
	r := &Rule{numbers: arith.Hide(arith.Rule{Name: name}), alg: alg, buckets: buckets}
	errs := []error{r.checkName(), r.checkUnits("limit", limit, 0)}
	if window < minWindow || window > MaxWindow {
		errs = append(errs, r.bad("window", window, "must be %v to %v", minWindow, MaxWindow))
	}
	if buckets < 1 || buckets > maxBuckets {
		errs = append(errs, r.bad("buckets", buckets, "must be 1 to %d", maxBuckets))
	}
	if alg == AlgorithmSlidingLog && limit > maxLogLimit {
		errs = append(errs, r.bad("limit", limit, "a sliding log keeps one record per unit and holds at most %d; a sliding window has no such bound", maxLogLimit))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	*arith.Of(r) = arith.Window(name, limit, window, buckets, kept)
	return r.sealed(), nil
}

// Must returns v, or panics if err is not nil. Use it for what a program makes once, when it
// starts: rules, and also limiters and middlewares, whose constructors fail only if their
// arguments are wrong.
//
//	var perUser = limit.Must(limit.SlidingWindow("api", 100, time.Minute))
//
// For numbers that come from a configuration, handle the error instead.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (r *Rule) checkName() error {
	if arith.Of(r).Name == "" {
		return r.bad("name", `""`, "must not be empty")
	}
	if len(arith.Of(r).Name) > MaxNameBytes {
		return r.bad("name", fmt.Sprintf("of %d bytes", len(arith.Of(r).Name)), "must be at most %d bytes", MaxNameBytes)
	}
	return nil
}

func (r *Rule) checkUnits(field string, v, least int64) error {
	if v < least || v > MaxUnits {
		return r.bad(field, v, "must be %d to %d", least, int64(MaxUnits))
	}
	return nil
}

func (r *Rule) bad(field string, value any, format string, args ...any) error {
	name := arith.Of(r).Name
	if len(name) > MaxNameBytes {
		name = name[:32] + "…"
	}
	return fmt.Errorf("limit: %s rule %q: %s %v: %s", r.word(), name, field, value, fmt.Sprintf(format, args...))
}

// sealed sets the hashes: of the name, and of the name with the algorithm.
func (r *Rule) sealed() *Rule {
	h := arith.HashName(arith.Of(r).Name)
	arith.Of(r).NameHash, arith.Of(r).Hash = h, (h^uint64(r.alg))*1099511628211
	return r
}

// DryRun returns a copy of r that admits everything. What r would have refused
// consumes nothing and is reported in [Result.WouldRefuse], to see the effect of a
// limit before it is enforced. Both rules use the same counters: to end the dry run,
// use r again. Do not Refund what would have been refused: it was not consumed.
func (r *Rule) DryRun() *Rule {
	switch {
	case r == unlimited:
		return r
	case !r.Valid():
		return nil
	}
	d := *r
	d.dry, d.parts = true, r.parts.dryRun()
	return &d
}

// IsDryRun reports whether r comes from [Rule.DryRun].
func (r *Rule) IsDryRun() bool { return r != nil && r.dry }

// Exact returns a copy of r that marks a limit which must be exact, such as one of log-ins. Where it
// is taken with a context, by a [ContextLimiter] and so by the middlewares and servers of this project, a
// limiter with the method TakeExact, as that of package hybrid, then lets Redis decide, and the caller
// may wait for a round trip. Calls without a context, and WaitN, decide as under r. Both rules use the
// same counters. A combined rule is exact if one of its parts is.
func (r *Rule) Exact() *Rule {
	switch {
	case r == unlimited:
		return r
	case !r.Valid():
		return nil
	}
	e := *r
	e.exact = true
	return &e
}

// IsExact reports whether r comes from [Rule.Exact].
func (r *Rule) IsExact() bool { return r != nil && r.exact }

// unlimited is made by no constructor and is recognised by its address.
var unlimited = new(Rule)

// Unlimited returns the rule for a key that has no limit: the same pointer each time, so
// that it can be compared. A function that chooses rules returns it, and its caller, such as
// a middleware of this project, then calls no limiter. A limiter that gets it refuses it like
// a nil rule: a forgotten comparison must not let everything pass.
func Unlimited() *Rule { return unlimited }

// Name returns the name.
func (r *Rule) Name() string { return arith.Of(r).Name }

// Algorithm returns the algorithm.
func (r *Rule) Algorithm() Algorithm { return r.alg }

// Limit returns the limit, or the capacity of a leaky bucket, in units.
func (r *Rule) Limit() int64 { return arith.Of(r).Limit }

// Units returns the units that a leaky bucket leaks per [Rule.Period]; 0 for others.
func (r *Rule) Units() int64 { return arith.Of(r).Units }

// Period returns the period of a leaky bucket's leak, or the window as given to the constructor. Of a
// [Quota] it is 24 hours, 7 or 31 days.
func (r *Rule) Period() time.Duration { return arith.Of(r).Period }

// Buckets returns the sub-buckets of a window, 1 for a fixed window, a calendar or a log,
// 0 for a leaky bucket.
func (r *Rule) Buckets() int { return r.buckets }

// Valid reports whether r was built by a constructor of this package. A nil
// rule is not.
func (r *Rule) Valid() bool { return r != nil && r.alg != 0 }

// word returns the algorithm by the name of the constructor that made r.
func (r *Rule) word() string {
	if r.funnel {
		return "funnel"
	}
	return r.alg.String()
}

// String describes the rule for people and logs.
func (r *Rule) String() string {
	if r == unlimited {
		return "unlimited"
	}
	if !r.Valid() {
		return "invalid rule"
	}
	if r.parts != nil {
		return r.combined()
	}
	text := fmt.Sprintf("%s %q: %d", r.word(), arith.Of(r).Name, arith.Of(r).Limit)
	switch {
	case r.funnel:
		text += fmt.Sprintf(", leaking %d", arith.Of(r).Units)
	case r.alg == AlgorithmFunnel:
		text += fmt.Sprintf(", refilling %d", arith.Of(r).Units)
	}
	if c := arith.Of(r).Calendar; c != nil {
		text += " per " + calendarOf(c).String()
	} else {
		text += " per " + inWords(arith.Of(r).Period)
	}
	if r.alg == AlgorithmSlidingWindow && r.buckets != arith.DefaultBuckets {
		text += fmt.Sprintf(" in %d buckets", r.buckets)
	}
	if r.exact {
		text += " (exact)"
	}
	if r.dry {
		text += " (dry run)"
	}
	return text
}

// inWords returns a time as people say it, such as minute, 10 minutes or 36 hours; what is no whole number
// of a unit as [time.Duration] has it.
func inWords(d time.Duration) string {
	for _, unit := range [...]struct {
		is   time.Duration
		name string
	}{{time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch n := d / unit.is; {
		case d != n*unit.is:
		case n == 1:
			return unit.name
		default:
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return d.String()
}
