// Package report has what nodes and Redis exchange about one key: what a node reports, and what
// Redis answers. Counters write reports and apply answers. Package redisstore encodes the one and
// reads the other. Values of this package are plain data, without a state of their own.
package report

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Bucket is a number of units that were admitted in one bucket of a window. ID is Redis' time
// divided by the length of the bucket, both in µs. Last is when the last unit came, counted from
// the beginning of the bucket. It may be too late, up to the end of the bucket: it is sent to Redis
// in µs, rounded up. See [arith.Rule.Gone].
type Bucket struct {
	ID, Units int64
	Last      time.Duration
}

// State is what Redis knows about one counter.
type State struct {
	// Err is set if this counter alone failed, to a [*limit.KeyError]. Then the rest is zero,
	// except for Booked.
	Err error
	// Booked is set together with Err, in the answer to a batch that is sent again, if the units
	// were booked the first time, before the key broke.
	Booked bool
	// Gen is the generation: Redis' time in µs of the last reset or refund, 0 for never.
	Gen int64
	// Born is Redis' time in µs at which the newest unit was booked, 0 if none was. A generation
	// has cleared all content that was born before it.
	Born int64
	// Level is the time in which a leaky bucket will be empty, in the rule's own denominator.
	// Negative: it has been empty for that long.
	Level arith.Span
	// Buckets are the buckets of a window that still count, by ascending ID.
	Buckets []Bucket
	// Converted is set if the counter was last written under a rule of the same name with another
	// rate or bucket length. The units of a window may have moved by up to one bucket of that
	// length.
	Converted bool
	// Waiting is Redis' time in µs until which callers wait who have booked a leaky bucket ahead; 0:
	// none waits.
	Waiting int64
	// Forgiven is how many units of the report's Debt were not booked.
	Forgiven int64
}

// Answer is what Redis answers about one counter, and when.
type Answer struct {
	State
	Rule      *limit.Rule // of the report
	Restored  bool        // the report had Restore
	At        int64       // our time at which Redis answered, ns
	ServerNow int64       // Redis' time then, ns
	Slack     int64       // uncertainty of At, ns
	Late      int64       // by how much At may be too late, ns
	Sent      int64       // our time at which the exchange began, ns
	Announce  bool        // units were booked now, and not for the first time after an outage
	Returned  bool        // the report had refunds
	Applied   bool        // the report was applied now, not by an earlier attempt
	Own       int64       // units that the call has booked, if it was no report

	// The counter sets these before it applies the answer to what it counts.
	Now        int64 // our time now, ns
	ClockSlack int64 // uncertainty of Redis' clock at present, ns
	Floor      bool  // what we knew and have sent is a lower bound of the true state
	Older      bool  // of an earlier generation than the one we know: Redis has lost data
}

// Report is what a node reports about one counter. Without units it asks for the state.
type Report struct {
	// Key is the name of the counter in Redis.
	Key string
	// Rule is a leaky bucket or a window, not a log.
	Rule *limit.Rule
	// Units are booked, even above the limit.
	Units int64
	// Ahead, for a leaky bucket, is how long until a bucket with only the sender's unreported units
	// would be empty; negative if these have leaked.
	Ahead arith.Span
	// Buckets, for a window, says in which buckets the units were admitted. Their sum is at most
	// Units: units that no longer count when a report is sent again are left out, but are still
	// booked in the ledger. Redis books buckets ahead of its time into the current one, and drops
	// buckets that no longer count.
	Buckets []Bucket

	// Back, for a leaky bucket, and BackBuckets, for a window, are refunds of units that earlier
	// reports have booked: their cost, and units by bucket. Redis subtracts them before it books
	// Units, and at most as much as it counts. A refund begins a new generation.
	Back        arith.Span
	BackBuckets []Bucket
	// BackTop is the level of a leaky bucket above which Back is not subtracted while callers wait who
	// have booked ahead: they have booked behind the refunded units, on other nodes, and keep their
	// times.
	BackTop arith.Span
	// BackGen is the generation of the key in which the units were refunded. What a reset since has
	// cleared is not subtracted again.
	BackGen int64

	// Debt, for a leaky bucket, is how many of Units were admitted in an outage. As many of them as
	// would lift the level above Ceiling are not booked, but forgiven. The level is not lowered for
	// that: what others have booked stays.
	Debt    int64
	Ceiling arith.Span

	// Waits, for a leaky bucket, is for how long callers wait who have booked units ahead, in this
	// report or an earlier one; 0: none waits.
	Waits time.Duration

	// Restore first merges Known into the counter, to restore lost data. The result is of the later
	// generation. The content of each counts if it is of that generation or was born since it
	// began; if both count, the maximum of them is taken. Merging again, or from several nodes in
	// any order, changes nothing.
	Restore bool
	Known   State
}

// Refunds reports whether r has refunds.
func (r *Report) Refunds() bool { return r.Back != arith.Span{} || len(r.BackBuckets) > 0 }

// StoredKey is a key as a counter keeps it: a long one is Hashed, and its Text is its SHA-256 in
// hexadecimal digits.
type StoredKey struct {
	Text   string
	Hashed bool
}

// NoticeID names a counter in notices: a hash of its name in Redis.
type NoticeID [16]byte

// Notice says of one counter that it is used up, or that there is room again.
type Notice struct {
	ID    NoticeID
	Shard int           // of the counter
	Shape uint32        // of the rule, see [arith.Rule.ShapeHash]
	Limit int64         // with which the counter was decided: it applies to rules of that shape with no higher limit
	Gen   int64         // generation of the state, as in [State]
	Now   time.Duration // Redis' time at which that was so, since the Unix epoch
	Until time.Duration // Redis' time from which one more unit fits; 0: there is room now (reset, set, refund)
}
