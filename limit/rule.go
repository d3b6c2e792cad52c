package limit

import (
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

const (
	minWindow   = time.Millisecond
	maxBuckets  = 1000
	maxLogLimit = 1_000_000 // a sliding log keeps one record per unit
)

// Rule is an immutable limit: a name, an algorithm and its numbers. Build it once, with one of the
// functions that return a Rule, and keep it: a rule that is built anew for each check is slow, and
// the limiter of package hybrid logs that. It is safe to share between goroutines and limiters. The
// zero Rule is not usable: limiters refuse it like a nil one.
//
// The name is a namespace: two rules of the same name and algorithm share the counter of a key. So a
// limit can be changed while it is in use, and keys can have different plans, without losing the
// count: another limit applies to the count as it is; another period or number of buckets converts
// the count, rounded up. A rule of another algorithm has its own counters.
type Rule struct {
	numbers
	dry   bool
	exact bool
	parts *parts // of a combined rule
}

// numbers are what limiters compute with. Only this module can read them.
type numbers = arith.Hidden

// TokenBucket describes a token bucket: it holds up to burst tokens and gets rate tokens in each
// period, and each unit takes one. Burst is 0 to 1<<53, rate 1 to 1<<53. An empty bucket must be full
// again within 100 years of 365 days. The bucket counts by the generic cell rate algorithm (GCRA).
//
//	limit.TokenBucket("api", 10, time.Second, 100) // 10 a second, and 100 at once
func TokenBucket(name string, rate int64, per time.Duration, burst int64) (*Rule, error) {
	r := newRule(name, arith.TokenBucket)
	errs := []error{r.checkName(), r.checkUnits("rate", rate, 1), r.checkUnits("burst", burst, 0)}
	if per <= 0 || per > arith.MaxWindow {
		errs = append(errs, r.bad("per", per, "must be above 0 and at most %v", arith.MaxWindow))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	*arith.Of(r) = arith.Bucket(name, rate, per, burst)
	if arith.Of(r).Full.NS > int64(arith.MaxWindow) {
		return nil, r.bad("burst", burst, "at %d per %v it would need more than %v to fill", rate, per, arith.MaxWindow)
	}
	return r.sealed(), nil
}

// newRule returns a rule whose numbers are not set, for the texts of errors.
func newRule(name string, a arith.Algorithm) *Rule {
	return &Rule{numbers: arith.Hide(arith.Rule{Name: name, Algorithm: a})}
}

// PerSecond describes n units in any second: a [SlidingWindow] of 1 s, with its excess.
func PerSecond(name string, n int64) (*Rule, error) { return SlidingWindow(name, n, time.Second) }

// PerMinute describes n units in any minute: a [SlidingWindow] of 1 min, with its excess.
func PerMinute(name string, n int64) (*Rule, error) { return SlidingWindow(name, n, time.Minute) }

// PerHour describes n units in any hour: a [SlidingWindow] of 1 h, with its excess.
func PerHour(name string, n int64) (*Rule, error) { return SlidingWindow(name, n, time.Hour) }

// SlidingWindow describes limit units in a window, counted in 10 sub-buckets. Any
// window, wherever it begins, holds at most the limit and one bucket's share of it:
// limit + ⌈limit/buckets⌉, which is 6 of 5, and 110 of 100.
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
	return windowRule(arith.SlidingWindow, name, limit, window, buckets, buckets)
}

// FixedWindow describes at most limit units in each window. Windows are aligned to
// the Unix epoch of the clock that decides: Redis' clock if the counter is shared.
// The window is rounded up to a whole microsecond.
func FixedWindow(name string, limit int64, window time.Duration) (*Rule, error) {
	return windowRule(arith.FixedWindow, name, limit, window, 1, 0)
}

// SlidingLog describes at most limit units in any window, exactly: each unit is
// stored until it is one window old. The limit is at most 1,000,000.
// The window is rounded up to a whole microsecond.
func SlidingLog(name string, limit int64, window time.Duration) (*Rule, error) {
	return windowRule(arith.SlidingLog, name, limit, window, 1, 0)
}

func windowRule(a arith.Algorithm, name string, limit int64, window time.Duration, buckets, kept int) (*Rule, error) {
	r := newRule(name, a)
	errs := []error{r.checkName(), r.checkUnits("limit", limit, 0)}
	if window < minWindow || window > arith.MaxWindow {
		errs = append(errs, r.bad("window", window, "must be %v to %v", minWindow, arith.MaxWindow))
	}
	if buckets < 1 || buckets > maxBuckets {
		errs = append(errs, r.bad("buckets", buckets, "must be 1 to %d", maxBuckets))
	}
	if a == arith.SlidingLog && limit > maxLogLimit {
		errs = append(errs, r.bad("limit", limit, "a sliding log keeps one record per unit and holds at most %d; a sliding window has no such bound", maxLogLimit))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	*arith.Of(r) = arith.Window(a, name, limit, window, buckets, kept)
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
	if len(arith.Of(r).Name) > arith.MaxNameBytes {
		return r.bad("name", fmt.Sprintf("of %d bytes", len(arith.Of(r).Name)), "must be at most %d bytes", arith.MaxNameBytes)
	}
	return nil
}

func (r *Rule) checkUnits(field string, v, least int64) error {
	if v < least || v > arith.MaxUnits {
		return r.bad(field, v, "must be %d to %d", least, int64(arith.MaxUnits))
	}
	return nil
}

func (r *Rule) bad(field string, value any, format string, args ...any) error {
	name := arith.Of(r).Name
	if len(name) > arith.MaxNameBytes {
		name = name[:32] + "…"
	}
	return fmt.Errorf("limit: %v rule %q: %s %v: %s", arith.Of(r).Algorithm, name, field, value, fmt.Sprintf(format, args...))
}

// sealed sets the hashes: of the name, and of the name with the algorithm.
func (r *Rule) sealed() *Rule {
	h := arith.HashName(arith.Of(r).Name)
	arith.Of(r).NameHash, arith.Of(r).Hash = h, (h^uint64(arith.Of(r).Algorithm))*1099511628211
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

// Exact returns a copy of r that marks a limit which all processes together must not exceed, such as
// one of log-ins. Where it is taken with a context, by a [ContextLimiter] and so by the middlewares and
// servers of this project, a limiter with the method TakeExact, as that of package hybrid, lets Redis
// decide, for a round trip. What the algorithm of r admits is admitted. In an outage the fallback of the
// limiter decides, and Source is [SourceDegraded]: where nothing may pass then, use a limiter of its own
// with FailClosed. Calls without a context, and WaitN, decide as under r. Both rules use the same
// counters. A combined rule is exact if one of its parts is.
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

// Limit returns the limit, or the burst of a token bucket, in units.
func (r *Rule) Limit() int64 { return arith.Of(r).Limit }

// Period returns the period in which a token bucket gets its rate, or the window as given to the
// constructor. Of a [Quota] it is 24 hours, 7 or 31 days.
func (r *Rule) Period() time.Duration { return arith.Of(r).Period }

// Valid reports whether r was built by a constructor of this package. A nil
// rule is not.
func (r *Rule) Valid() bool { return r != nil && arith.Of(r).Algorithm != 0 }

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
	is := arith.Of(r)
	text := fmt.Sprintf("%v %q: %d", is.Algorithm, is.Name, is.Limit)
	if is.Algorithm == arith.TokenBucket {
		text += fmt.Sprintf(", refilling %d", is.Units)
	}
	if is.Calendar != nil {
		text += " per " + is.Calendar.String()
	} else {
		text += " per " + inWords(is.Period)
	}
	if is.Algorithm == arith.SlidingWindow && is.Buckets != arith.DefaultBuckets {
		text += fmt.Sprintf(" in %d buckets", is.Buckets)
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
