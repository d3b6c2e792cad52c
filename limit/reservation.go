package limit

import (
	"context"
	"time"
)

// Reservation holds units that were booked for a caller who is willing to wait for them. The
// limiters of this module return one that is never nil and safe for concurrent use.
type Reservation interface {
	// OK reports whether the caller may use the units after Delay.
	OK() bool
	// Delay returns how long the caller must wait, from the call of Reserve on, before using the
	// units; it does not count down. If the reservation is not OK, it is the shortest time after
	// which Reserve could succeed, or [Never].
	Delay() time.Duration
	// Result returns the whole answer. Allowed reports whether the units can be used at once; if
	// not, RetryAfter is the Delay.
	Result() Result
	// Cancel refunds the units, as far as they still count, for work that will not be done. Only the
	// first call has an effect. Those who have reserved later keep their times, so units that keep
	// them in order come back when these have been served or have cancelled, too.
	//
	// A limiter in memory cancels at once, whatever ctx is, and returns nil. That of package remote
	// calls Redis, at most once: with an error it is unknown whether the units were refunded, and
	// another call does nothing. If ctx has already ended, Redis is not called, and Cancel may be
	// called again.
	Cancel(ctx context.Context) error
}
