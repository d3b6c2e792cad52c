package hybrid

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// invalid takes note of a check that cannot be asked, and returns the answer to it.
func (l *Limiter) invalid(key string, rule *limit.Rule, n int64) limit.Result {
	res := decision.Invalid(rule)
	if l == nil {
		return res
	}
	l.tally.invalid()
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
		err = fmt.Errorf("hybrid: %w: %v counts a key together with another rule of that name, which has another period, rate or number of buckets",
			limit.ErrUnsupported, rule)
	}
	if !l.misuse.reported[cause].Swap(true) {
		l.notify.happened(Event{Kind: EventInvalid, Time: time.Unix(0, l.now()), Reason: "a check cannot be asked, and is denied", Key: key, Err: err})
	}
	return res
}

// conflict takes note of two rules of one name that are used side by side, though they
// count differently. It is called under locks of the table.
func (l *Limiter) conflict(was, is *limit.Rule) {
	l.notify.happened(Event{Kind: EventConflict, Time: time.Unix(0, l.now()),
		Reason: fmt.Sprintf("rules of one name that count differently are used side by side; of a key asked by both neither holds: %v; %v", was, is)})
}
