package limit

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Never is the RetryAfter of a question that no waiting will help: more units
// than the limit holds, or a question that cannot be asked.
const Never = time.Duration(math.MaxInt64)

// Source says on what knowledge a decision rests.
type Source uint8

// The sources.
const (
	// SourceLocal is a limiter that shares nothing.
	SourceLocal Source = iota
	// SourceRemote is Redis itself, asked for this very decision.
	SourceRemote
	// SourceUnsynced is a hybrid limiter whose first answer from Redis for the
	// key is still to come.
	SourceUnsynced
	// SourceSynced is a hybrid limiter that knows what Redis knew lately.
	SourceSynced
	// SourceDegraded is a hybrid limiter that cannot reach Redis.
	SourceDegraded
	// SourceInvalid is a limiter that was asked what it cannot decide: n is negative,
	// or the rule is nil, zero or not supported. The answer is denied, for ever.
	SourceInvalid
)

var sourceNames = [...]string{"local", "remote", "unsynced", "synced", "degraded", "invalid"}

// String returns the source as one lower-case word.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// Result is the answer to one check: the five facts of redis-cell's
// CL.THROTTLE, for every algorithm, and who decided. The zero Result is a
// refusal by a limit of 0.
type Result struct {
	// Allowed tells whether the units asked for were admitted (all or none).
	Allowed bool
	// WouldRefuse tells that they were let pass only because the rule is a dry
	// run (see [Rule.DryRun]): nothing was consumed, and RetryAfter is what it
	// would have been.
	WouldRefuse bool
	// Limit is the rule's limit or capacity, in units.
	Limit int64
	// Remaining is how many units would be admitted right now, after this
	// decision. It is never negative.
	Remaining int64
	// RetryAfter is 0 when units were admitted; otherwise the shortest wait after which
	// the same question succeeds if nobody else asks, or [Never].
	RetryAfter time.Duration
	// ResetAfter is how long until the key is as if never used, if nobody asks.
	ResetAfter time.Duration
	// Source tells on what knowledge the decision rests.
	Source Source
}

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up and at least 1: what
// the Retry-After field of an HTTP response wants. ok is false if there is nothing to
// say: the units were admitted, or RetryAfter is [Never]; n is 0 then.
func (res Result) RetryAfterSeconds() (n int, ok bool) {
	if res.Allowed || res.RetryAfter == Never {
		return 0, false
	}
	s := int64(res.RetryAfter / time.Second)
	if res.RetryAfter%time.Second > 0 {
		s++
	}
	return int(min(max(s, 1), math.MaxInt)), true
}

// Judged returns res as it is to be told: a refusal by a dry run lets pass what
// could be asked.
func (r *Rule) Judged(res Result) Result {
	if !res.Allowed && r.IsDryRun() {
		res.Allowed, res.WouldRefuse = true, true
	}
	return res
}

// Weigh returns what n units count as when each counts weight-fold: n·weight,
// saturating, but never so much that a request which fits the limit could not
// be admitted by an empty counter.
func (r *Rule) Weigh(n, weight int64) int64 {
	if weight == 1 || n <= 0 {
		return n
	}
	if n > r.limit {
		return n
	}
	hi, lo := bits.Mul64(uint64(n), uint64(weight))
	if hi != 0 || lo > uint64(r.limit) {
		return r.limit
	}
	return int64(lo)
}

// FunnelResult describes the answer to a question for n units of a funnel
// whose level after the decision is the given span (the time to run empty).
// Each unit counts weight-fold; weight is at least 1, usually 1.
func (r *Rule) FunnelResult(allowed bool, n, weight int64, level arith.Span) Result {
	res := Result{Allowed: allowed, Limit: r.limit, ResetAfter: level.Ceil()}
	res.Remaining = r.Whole(r.Sub(r.full, level)) / max(weight, 1)
	if allowed {
		return res
	}
	if n > r.limit {
		res.RetryAfter = Never
		return res
	}
	res.RetryAfter = max(r.Sub(r.Add(level, r.Cost(r.Weigh(n, weight))), r.full).Ceil(), 1)
	return res
}

// TicksResult is FunnelResult of one unit that was admitted, with a level of so many
// ticks (see [Rule.Ticks]), no more than a full funnel has.
func (r *Rule) TicksResult(level int64) Result {
	t := &r.ticks
	left := time.Duration(level / t.PerNS)
	if level%t.PerNS > 0 {
		left++
	}
	return Result{Allowed: true, Limit: r.limit, Remaining: (t.Full - level) / t.One, ResetAfter: left}
}

// WindowResult describes the answer to a question for n units of a window.
// counts holds the weighted units of the buckets, the current one first, then
// backwards in time, Kept()+1 of them; last says of each how long after the bucket
// began its last unit came, in ns (see [Rule.Gone]); elapsed is the time since the
// current bucket began. Each unit of n counts weight-fold.
func (r *Rule) WindowResult(allowed bool, n, weight int64, counts, last []int64, elapsed time.Duration) Result {
	res := Result{Allowed: allowed, Limit: r.limit}
	used, oldest, newest := int64(0), len(counts)-1, -1
	for i, c := range counts {
		if c > 0 && newest < 0 {
			newest = i
		}
		if r.alg == AlgorithmSlidingWindow && i == oldest {
			c -= r.Gone(c, last[i], int64(elapsed))
		}
		used = addSat(used, c)
	}
	res.Remaining = max(r.limit-used, 0) / max(weight, 1)
	if newest >= 0 {
		end := r.width // a fixed window ends as a whole
		if r.alg == AlgorithmSlidingWindow {
			end = min(end, time.Duration(last[newest]))
		}
		res.ResetAfter = max(time.Duration(oldest-newest)*r.width+end-elapsed, 0)
	}
	switch {
	case allowed:
	case n > r.limit:
		res.RetryAfter = Never
	default:
		res.RetryAfter = max(r.windowWait(r.limit-r.Weigh(n, weight), counts, last, elapsed), 1)
	}
	return res
}

// windowWait returns how long until at most room units are counted.
func (r *Rule) windowWait(room int64, counts, last []int64, elapsed time.Duration) time.Duration {
	if r.alg != AlgorithmSlidingWindow {
		if counts[0] <= room {
			return 0
		}
		return r.width - elapsed
	}
	// As time passes the units of the oldest bucket leave, then those of the next
	// oldest. Find the bucket with whose units the count falls to room: the newer
	// ones still count in full then.
	newer := int64(0)
	for i, c := range counts {
		if sum := addSat(newer, c); sum > room || i == len(counts)-1 {
			start := time.Duration(len(counts)-1-i)*r.width - elapsed // when it is the oldest
			return max(start+time.Duration(r.GoneAt(c, c-max(room-newer, 0), last[i])), 0)
		}
		newer = addSat(newer, c)
	}
	return 0
}

func addSat(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}
