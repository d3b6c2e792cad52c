// Package algorithm has the arithmetic of the algorithms: what is counted of a key, and what
// follows from it. It takes no lock and reads no clock.
package algorithm

import (
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// State is what is counted of one key by one algorithm. A counter knows its state by this
// interface alone, so that another algorithm is another file here.
//
// Times are in ns and never run backwards. The rule is the one that the state counts by. A
// cost is what n units count as: n times the multiplier, capped by [arith.Rule.Multiplied]. The
// multiplier is what a unit that the authority has not acknowledged counts as, or
// [MultiplierOpen] or [MultiplierClosed]. States are not safe for concurrent use.
type State interface {
	Decider
	Leaser
	Exchanger
}

// Decider is the part of a [State] that checks use.
type Decider interface {
	// Roll moves on to now. It returns the pending units that have outlived the window.
	Roll(r *arith.Rule, now, multiplier int64) (expired int64)
	// Take admits n units or refuses them. Without book it consumes nothing.
	Take(r *arith.Rule, now, n, cost, multiplier int64, book bool) bool
	// Book counts n units, whether they fit or not.
	Book(r *arith.Rule, now, n, cost, multiplier int64)
	// Describe returns the whole answer to a check for n units.
	Describe(r *arith.Rule, now, n, multiplier int64, allowed bool) limit.Result
	// FitsAt returns a time before which so much more cannot fit, if it does not fit now;
	// now, if there is no such time.
	FitsAt(r *arith.Rule, now, cost int64) int64
	// Usage reports whether any units count, and whether one more would be refused.
	Usage(r *arith.Rule, now int64) (used, denies bool)
	// Claim keeps n units for a caller who waits. It replaces the claim of before, which it
	// returns. A state that can be booked ahead has no claims.
	Claim(r *arith.Rule, n, multiplier int64) (was int64)
	// Refund hands back n units, the newest first, as far as so many count. Those of a leaky
	// bucket take cost to leak, and it does not run empty before least because of them. It
	// returns by how many fewer count now, how many were taken off, and how many of these will
	// never be reported to the authority. Units of a leaky bucket that are reported already are handed back only if reported is set.
	Refund(r *arith.Rule, now, n, multiplier int64, cost, least arith.Span, reported bool) (back, taken, withdrawn int64)
	// Set makes n units count instead of what counted before.
	Set(r *arith.Rule, now, n int64)
	// Reshape re-expresses what is counted by another rule, rounded up. It returns the pending
	// units that do not count under that.
	Reshape(old, rule *arith.Rule, now, multiplier int64) (expired int64)
	// SetMultiplier changes what a unit that the authority has not acknowledged counts as.
	SetMultiplier(r *arith.Rule, now, was, is int64)
	// Raised notes that the limit has become larger. What a request would have counted as, if
	// its limit had not capped that, counts up to the new limit.
	Raised(r *arith.Rule, now, multiplier int64)
}

// Leaser is the part of a [State] that leases use.
type Leaser interface {
	// Spare bounds how many units a lease may have; 0: there is no lease.
	Spare(r *arith.Rule, last int64, clock Clock) int64
	// Lease returns what the word of a lease begins with: the level of a leaky bucket at last,
	// or when the current bucket of a window ends.
	Lease(r *arith.Rule, last int64) (level arith.Span, until int64)
	// Spend counts n units that a lease has admitted up to now, the last of them at last. A
	// leaky bucket is empty at empty after that.
	Spend(r *arith.Rule, now, last, n int64, empty arith.Span)
}

// Exchanger is the part of a [State] that the exchange with the authority uses. Collect
// begins an exchange. Settle, KeepSent, DropSent or GiveBack ends it.
type Exchanger interface {
	// Units returns the units that the authority has not been sent, and those that it was sent
	// and has not acknowledged.
	Units() (pending, sent int64)
	// Drained reports whether all that is counted has long ceased to count, although it was
	// not reported.
	Drained(r *arith.Rule, now int64) bool
	// Drain drops the pending units if that is so, and returns how many. It is for outages, in
	// which nothing can be reported, and for a state that is not used any more.
	Drain(r *arith.Rule, now int64) (dropped int64)
	// HasReturns reports whether units were handed back that the authority has not
	// acknowledged.
	HasReturns() bool
	// ReturnsAt reports whether there are such that it was not sent and that count.
	ReturnsAt(r *arith.Rule, now int64) bool
	// KnowsClock reports whether the state needs no reading of the authority's clock.
	KnowsClock() bool
	// Follow applies a reading of the authority's clock. last is when the latest check was,
	// [math.MinInt64] if there was none.
	Follow(r *arith.Rule, now, last, multiplier int64, clock Clock)

	// Collect moves what is pending to what is sent.
	Collect(r *arith.Rule)
	// Sent returns what is sent and not acknowledged. The authority's level is known to slack.
	Sent(r *arith.Rule, now, slack int64) Sent
	// KnownState returns what the authority has answered, and should still know. It is empty if it is
	// not known in which buckets that is.
	KnownState(r *arith.Rule, now int64) (level arith.Span, buckets []Bucket)
	// KnownUnits returns what is known, in units, rounded down.
	KnownUnits(r *arith.Rule, now int64) int64
	// FullUntil reports whether what is known leaves no room for one unit at now, and from when
	// on one fits if no other comes.
	FullUntil(r *arith.Rule, now int64) (until int64, full bool)
	// Blank reports whether nothing that is known counts any more.
	Blank(now int64) bool
	// Forgive notes that the authority has not booked n of the units sent.
	Forgive(r *arith.Rule, n int64)
	// Settle takes over an answer: what was sent is booked.
	Settle(r *arith.Rule, a Answer, multiplier int64) Settled
	// KeepSent counts what was sent as known, without an answer.
	KeepSent(r *arith.Rule, multiplier int64)
	// KeepSentBack goes on counting units whose hand-back was sent.
	KeepSentBack(r *arith.Rule, multiplier int64)
	// DropSent forgets what was sent: a reset has cleared it.
	DropSent(r *arith.Rule, multiplier int64)
	// GiveBack undoes Collect. It returns the units that have expired meanwhile.
	GiveBack(r *arith.Rule) (expired int64)
	// Renew sets the state to what the authority says after a reset. Pending units are
	// dropped: they were admitted before. It returns how many.
	Renew(r *arith.Rule, a Answer, multiplier int64) (withdrawn int64)
	// SettleAlone takes off what was handed back, if there is no authority.
	SettleAlone()
}

// Clock is what is known of the authority's clock.
type Clock struct {
	Off   int64 // the most that its time may be ahead of ours, ns
	Slack int64 // it is ahead by no less than Off − 2·Slack, ns
	Sure  bool  // Off was measured; false: it is a guess

	WentBack bool  // it was set back since the last answer
	BackTo   int64 // what it showed then
}

// mayBe reports whether, by what was measured, the authority's clock may be ahead by off.
func (k *Clock) mayBe(off int64) bool { return k.Sure && off <= k.Off && off >= k.Off-2*k.Slack }

// Sent is what is sent to the authority and not acknowledged.
type Sent struct {
	Units   int64      // in all; 0: only a question
	Ahead   arith.Span // leaky bucket: when the units sent have leaked, counted from now; maybe negative
	Buckets []Bucket   // window: the units that still count, by bucket
	// Back (leaky bucket) and BackBuckets (window) are units handed back. They are not
	// among Units, but among those that the authority counts already.
	Back        arith.Span
	BackTop     arith.Span // above this level others have booked behind what is handed back
	BackBuckets []Bucket
	Debt        int64 // leaky bucket: how many of Units were admitted in an outage
}

// Answer is the state of the authority.
type Answer struct {
	Level      arith.Span // leaky bucket
	Buckets    []Bucket   // window
	At         int64      // our time at which the answer was given, ns
	ServerNow  int64      // the authority's time then, ns
	Slack      int64      // uncertainty of At, ns
	ClockSlack int64      // uncertainty of the authority's clock at present, ns
	Now        int64      // our present time, ns
	Floor      bool       // what we knew and have sent is a lower bound of the truth
	Older      bool       // of a generation before the one that we know: the authority has lost data
}

// Settled is what an [Answer] was found to be.
type Settled struct {
	Lost       bool  // below the lower bound: the authority has lost data
	Forgotten  bool  // below it as well, but what is missing had leaked before this answer
	Earlier    bool  // a window: no fewer units, but the last ones that we know are not among them
	Below      bool  // below the lower bound of a leaky bucket, which stands
	OtherClock bool  // given by a clock that is not the authority's present one
	Expired    int64 // units that have outlived the window
}
