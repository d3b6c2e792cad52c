package hybrid

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// invalid counts and reports an invalid check, and returns the answer to it.
func (l *Limiter) invalid(key string, rule *limit.Rule, n int64) limit.Result {
	res := decision.Invalid(rule)
	if l == nil {
		return res
	}
	l.tally.Of(rule).Invalid()
	if l.table == nil {
		return res
	}
	err, cause := l.CheckRule(rule), causeNames
	switch {
	case !rule.Valid():
		cause = causeRule
	case err != nil:
		cause = causeKind
	case n < 0:
		cause, err = causeN, fmt.Errorf("hybrid: %w: %d", limit.ErrInvalidN, n)
	default:
		err = fmt.Errorf("hybrid: %w: %v shares its name with another rule in this call, which has another period, rate or number of buckets",
			limit.ErrUnsupported, rule)
	}
	if !l.misuse.reported[cause].Swap(true) {
		l.notify.happened(Event{Kind: EventInvalid, Time: time.Unix(0, l.now()), Reason: "an invalid check is denied", Key: key, Err: err})
	}
	return res
}

// conflict reports that two rules of one name are in use that count differently. It is
// called while the table holds locks.
func (l *Limiter) conflict(was, is *limit.Rule) {
	l.notify.happened(Event{Kind: EventConflict, Time: time.Unix(0, l.now()),
		Reason: fmt.Sprintf("two rules of one name count differently, so neither limits a key that both are used for: %v; %v", was, is)})
}

// CountInvalid counts a check that its caller could not ask, such as that of a request without a
// key, as invalid: see [Stats]. The rule may be nil. The middlewares of this project call it.
func (l *Limiter) CountInvalid(rule *limit.Rule) {
	if l != nil {
		l.tally.Of(rule).Invalid()
	}
}
