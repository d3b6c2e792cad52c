// Package algorithm has the arithmetic of the algorithms: what is counted of a key, and what
// decisions follow from it. It takes no lock and reads no clock.
package algorithm

import (
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// State is what one algorithm counts of one key. A counter uses it through this interface alone, so
// a new algorithm needs only a new file here. One that can be shared through Redis is a [Replica], too.
//
// Times are in ns and never run backwards. The rule is the one that the state counts by. The
// multiplier is how many units one unit counts as while Redis has not acknowledged it, or
// [MultiplierOpen] or [MultiplierClosed]. The cost of n units is n times the multiplier, capped by
// [arith.Rule.Multiplied]. States are not safe for concurrent use.
type State interface {
	// The methods that checks use.

	// Fits reports whether cost more units fit now.
	Fits(r *arith.Rule, now, cost int64) bool
	// Book counts n units, whether they fit or not.
	Book(r *arith.Rule, now, n, cost, multiplier int64)
	// Describe returns the whole answer to a check for n units.
	Describe(r *arith.Rule, now, n, multiplier int64, allowed bool) limit.Result
	// FitsAt is for a cost that does not fit now. It returns a time before which it cannot fit;
	// now, if no such time is known.
	FitsAt(r *arith.Rule, now, cost int64) int64
	// Usage reports whether any units count, and whether one more would be refused.
	Usage(r *arith.Rule, now int64) (used, denies bool)
	// Claim reserves n units for a waiting caller. It replaces the previous claim and returns it. A
	// state that can be booked ahead has no claims.
	Claim(r *arith.Rule, n, multiplier int64) (was int64)
	// Refund subtracts units, the newest first, but no more than count now. back is by how many
	// fewer units count now, taken how many were subtracted, and withdrawn how many of these will
	// never be reported to Redis.
	Refund(r *arith.Rule, now, multiplier int64, d Refund) (back, taken, withdrawn int64)
	// Set replaces what is counted by n units.
	Set(r *arith.Rule, now, n int64)
	// Reshape converts what is counted to another rule, rounded up. It returns the pending units
	// that do not count under the new rule.
	Reshape(old, rule *arith.Rule, now, multiplier int64) (expired int64)
	// Trace returns what to remember when the counter is dropped, the zero Trace if nothing counts.
	Trace(r *arith.Rule, now, multiplier int64) Trace
	// Resume makes a new state count what was remembered of another under the same rule, as pending units.
	Resume(r *arith.Rule, now int64, t Trace)

	// The methods that leases use.

	// Spare returns how many units a lease may have at most; 0: grant no lease.
	Spare(r *arith.Rule, last int64, clock Clock) int64
	// Lease returns how the word of a new lease begins: for a leaky bucket with the level at last,
	// for a window with the end of its current bucket.
	Lease(r *arith.Rule, last int64) (level arith.Span, until int64)
	// Spend counts n units that a lease has admitted up to now, the last of them at last. empty is
	// when a leaky bucket will be empty after that.
	Spend(r *arith.Rule, now, last, n int64, empty arith.Span)
}

// Replica is what a node knows of a key that is shared through Redis: its parts, see parts.go. Collect begins an
// exchange. Settle, KeepSent, DropSent or GiveBack ends it. A sliding log is no Replica: it is never shared.
type Replica interface {
	// SetMultiplier changes how many units an unacknowledged unit counts as. It recounts them if the
	// limit has become larger: a cost that the old limit had capped counts up to the new limit.
	SetMultiplier(r *arith.Rule, now, was, is int64)

	// Units returns the units that were not sent to Redis yet, and those that were sent and are not
	// acknowledged.
	Units() (pending, sent int64)
	// HasReturns reports whether there are refunds that Redis has not acknowledged.
	HasReturns() bool
	// ReturnsAt reports whether there are refunds that were not sent to Redis and still count at
	// now.
	ReturnsAt(r *arith.Rule, now int64) bool

	// Collect makes all pending units sent units.
	Collect(r *arith.Rule)
	// Report writes into rep what is sent and not acknowledged. slack is the uncertainty of Redis'
	// level, in ns.
	Report(r *arith.Rule, now, slack int64, rep *report.Report)
	// KnownState returns what Redis has answered and should still know. It is empty if it is not
	// known in which of Redis' buckets the units are.
	KnownState(r *arith.Rule, now int64) (level arith.Span, buckets []report.Bucket)
	// KnownUnits returns the known part, in units, rounded down.
	KnownUnits(r *arith.Rule, now int64) int64
	// FullUntil reports whether the known part leaves no room for one unit at now. until is when
	// one unit fits, if no other comes before.
	FullUntil(r *arith.Rule, now int64) (until int64, full bool)
	// ForgetKnown clears the known part.
	ForgetKnown(r *arith.Rule, multiplier int64)
	// Blank reports whether nothing of the known part counts any more.
	Blank(now int64) bool
	// Settle applies an answer of Redis: what was sent is booked.
	Settle(r *arith.Rule, a report.Answer, multiplier int64) Settled
	// KeepSent makes sent units known, without an answer.
	KeepSent(r *arith.Rule, multiplier int64)
	// KeepSentBack drops the refunds that were sent: their units go on counting.
	KeepSentBack(r *arith.Rule, multiplier int64)
	// DropSent drops what was sent: a reset has cleared it.
	DropSent(r *arith.Rule, multiplier int64)
	// GiveBack undoes Collect. It returns the units that have expired in between.
	GiveBack(r *arith.Rule) (expired int64)
	// Renew sets the state to that of Redis after a reset. Pending units and all refunds are dropped,
	// because they are from before the reset. It returns how many units were pending. What was sent
	// stays until its answer.
	Renew(r *arith.Rule, a report.Answer, multiplier int64) (withdrawn int64)
}

var (
	_ State = (*LeakyBucket)(nil)
	_ State = (*Window)(nil)
	_ State = (*SlidingLog)(nil)

	_ Replica = (*LeakyBucket)(nil)
	_ Replica = (*Window)(nil)
)

// Refund says what a refund subtracts. Only the first field matters for windows and logs.
type Refund struct {
	Units    int64      // at most so many units
	Cost     arith.Span // the time that they take to leak
	Least    arith.Span // the leaky bucket does not become empty before this
	Reported bool       // also units that were reported to Redis
}

// IsWindow reports whether a rule counts by a [Window].
func IsWindow(r *limit.Rule) bool {
	switch arith.Of(r).Algorithm {
	case arith.SlidingWindow, arith.FixedWindow, arith.CalendarQuota:
		return true
	}
	return false
}

// Clock is what is known of Redis' clock.
type Clock struct {
	Off   int64 // the most by which it may be ahead of ours, ns
	Slack int64 // it is ahead by at least Off − 2·Slack, ns
	Sure  bool  // Off was measured; false: a guess

	WentBack bool  // it was set back since the last answer
	BackTo   int64 // what it showed when it was set back
}

// mayBe reports whether the measurement allows that Redis' clock is ahead by off.
func (k *Clock) mayBe(off int64) bool { return k.Sure && off <= k.Off && off >= k.Off-2*k.Slack }

// Settled is what [Replica].Settle found out about an answer.
type Settled struct {
	Lost       bool  // below the lower bound: Redis has lost data
	Forgotten  bool  // below it too, but the missing units had leaked before this answer
	Earlier    bool  // window: there are enough units, but the last ones that we know are not among them
	Below      bool  // leaky bucket: below the lower bound, which therefore stays in use
	OtherClock bool  // the clock of this answer is not the present clock of Redis
	Expired    int64 // pending units that have outlived the window
}
