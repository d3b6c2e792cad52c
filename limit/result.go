package limit

import (
	"fmt"
	"math"
	"time"
)

// Never is the RetryAfter of a call that waiting does not help: it asks for more
// units than the limit holds, or its arguments are invalid.
const Never = time.Duration(math.MaxInt64)

// Source says which data a decision is based on.
type Source uint8

// The sources.
const (
	// SourceLocal is a limiter that shares nothing with other processes.
	SourceLocal Source = iota
	// SourceRemote is Redis itself, asked for this decision.
	SourceRemote
	// SourceUnsynced is a hybrid limiter that has no answer from Redis for the
	// key yet.
	SourceUnsynced
	// SourceSynced is a hybrid limiter with a recent answer from Redis for the key.
	SourceSynced
	// SourceDegraded is a hybrid limiter that cannot reach Redis.
	SourceDegraded
	// SourceInvalid is a limiter that was called with invalid arguments: n is negative, or
	// the rule is nil, zero or not supported. It refuses, and RetryAfter is [Never].
	SourceInvalid
	// SourceNotice is a hybrid limiter that would have admitted, but refuses because it has
	// received a notice from another node that the key is used up.
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

// Result is the answer to one check: the five values of redis-cell's
// CL.THROTTLE, for every algorithm, and the source of the decision. The zero Result is a
// refusal by a limit of 0. As JSON and in logs its durations are seconds.
type Result struct {
	// Allowed reports whether the units asked for were admitted (all or none).
	Allowed bool
	// WouldRefuse is set if the units were admitted only because the rule is a dry
	// run (see [Rule.DryRun]). Nothing was consumed then, and RetryAfter is that of
	// the refusal.
	WouldRefuse bool
	// Limit is the rule's limit or capacity, in units.
	Limit int64
	// Remaining is how many units would be admitted right now, after this
	// decision. It is never negative.
	Remaining int64
	// RetryAfter is 0 when units were admitted; otherwise the shortest wait after which
	// the same call succeeds if no other caller takes units, or [Never].
	RetryAfter time.Duration
	// ResetAfter is how long until the key is as if never used, if no caller takes units.
	ResetAfter time.Duration
	// Source says which data the decision is based on.
	Source Source
}

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up and at least 1, for
// the Retry-After field of an HTTP response. If the units were admitted or RetryAfter is
// [Never], n is 0 and ok is false.
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
