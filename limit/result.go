package limit

import (
	"fmt"
	"math"
	"time"
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
	// SourceNotice is a hybrid limiter that another node has told that the key is used up, and
	// that would have admitted otherwise. The answer is denied.
	SourceNotice
)

var sourceNames = [...]string{"local", "remote", "unsynced", "synced", "degraded", "invalid", "notice"}

// String returns the source as one lower-case word.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// Result is the answer to one check: the five facts of redis-cell's
// CL.THROTTLE, for every algorithm, and who decided. The zero Result is a
// refusal by a limit of 0. As JSON and in logs its durations are seconds.
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
