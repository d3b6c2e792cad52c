package decision

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Judged returns res as the caller gets it: a refusal by a dry run lets pass what
// could be asked.
func Judged(r *limit.Rule, res limit.Result) limit.Result {
	if !res.Allowed && r.IsDryRun() {
		res.Allowed, res.WouldRefuse = true, true
	}
	return res
}

// LeakyBucket describes the answer to a question for n units of a leaky bucket
// whose level after the decision is the given span (the time to run empty).
// Each unit counts multiplier times; multiplier is at least 1, usually 1.
func LeakyBucket(r *arith.Rule, allowed bool, n, multiplier int64, level arith.Span) limit.Result {
	res := limit.Result{Allowed: allowed, Limit: r.Limit, ResetAfter: level.Ceil()}
	res.Remaining = r.Whole(r.Sub(r.Full, level)) / max(multiplier, 1)
	switch {
	case allowed:
	case n > r.Limit:
		res.RetryAfter = limit.Never
	default:
		res.RetryAfter = max(r.Sub(r.Add(level, r.Cost(r.Multiplied(n, multiplier))), r.Full).Ceil(), 1)
	}
	return res
}

// Ticks is LeakyBucket of one unit that was admitted, with a level of so many
// ticks (see [arith.Ticks]), no more than a full leaky bucket has.
func Ticks(r *arith.Rule, level int64) limit.Result {
	t := &r.Ticks
	left := (level + t.PerNS - 1) / t.PerNS
	return limit.Result{Allowed: true, Limit: r.Limit, Remaining: (t.Full - level) / t.One, ResetAfter: time.Duration(left)}
}

// Window is the buckets of a window, all or those that are not empty.
type Window struct {
	Len int
	// Bucket returns of a bucket, the current one first, then backwards in time, its age in
	// buckets, its multiplied units, and how long after it began its last unit came, in ns (see
	// [arith.Rule.Gone]).
	Bucket  func(i int) (age int, units, last int64)
	Elapsed time.Duration // since the current bucket began
}

// Buckets describes the answer to a question for n units of a window. Each unit of n counts
// multiplier times.
func Buckets(r *arith.Rule, n, multiplier int64, allowed bool, w *Window) limit.Result {
	res := limit.Result{Allowed: allowed, Limit: r.Limit}
	used, newest := int64(0), false
	for i := range w.Len {
		age, units, last := w.Bucket(i)
		if units > 0 && !newest {
			newest = true
			end := r.Width // a fixed window ends as a whole
			if r.Kept > 0 {
				end = min(end, time.Duration(last))
			}
			res.ResetAfter = max(time.Duration(r.Kept-age)*r.Width+end-w.Elapsed, 0)
		}
		if r.Kept > 0 && age == r.Kept {
			units -= r.Gone(units, last, int64(w.Elapsed))
		}
		used = addSat(used, units)
	}
	res.Remaining = max(r.Limit-used, 0) / max(multiplier, 1)
	switch {
	case allowed:
	case n > r.Limit:
		res.RetryAfter = limit.Never
	default:
		res.RetryAfter = max(windowWait(r, r.Limit-r.Multiplied(n, multiplier), w), 1)
	}
	return res
}

// windowWait returns how long until at most room units are counted.
func windowWait(r *arith.Rule, room int64, w *Window) time.Duration {
	// As time passes the units of the oldest bucket leave, then those of the next
	// oldest. Find the bucket with whose units the count falls to room: the newer
	// ones still count in full then.
	newer := int64(0)
	for i := range w.Len {
		age, units, last := w.Bucket(i)
		sum := addSat(newer, units)
		switch {
		case sum <= room:
			newer = sum
		case r.Kept == 0:
			return r.Width - w.Elapsed
		default:
			start := time.Duration(r.Kept-age)*r.Width - w.Elapsed // when it is the oldest
			return max(start+time.Duration(r.GoneAt(units, units-max(room-newer, 0), last)), 0)
		}
	}
	return 0
}

func addSat(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}
