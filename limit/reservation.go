package limit

import (
	"sync/atomic"
	"time"
)

// Reservation holds units that were booked for a caller who is willing to wait
// for them. It is safe for concurrent use. A nil or zero Reservation is not OK.
// It must not be copied.
type Reservation struct {
	res       Result
	ok        bool
	cancel    func() // nil: nothing to refund
	cancelled atomic.Bool
}

// NewReservation returns a reservation with the given answer. If it is OK, the
// units may be used after res.RetryAfter. cancel refunds them and is called once
// at most; it is nil if there is nothing to refund.
func NewReservation(ok bool, res Result, cancel func()) *Reservation {
	r := &Reservation{res: res, ok: ok}
	if ok {
		r.cancel = cancel
	}
	return r
}

// OK reports whether the caller may use the units after Delay.
func (r *Reservation) OK() bool { return r != nil && r.ok }

// Delay returns how long the caller must wait, from the call of Reserve on,
// before using the units; it does not count down. If the reservation is not OK, it is
// the shortest time after which Reserve could succeed, or [Never].
func (r *Reservation) Delay() time.Duration {
	return r.Result().RetryAfter
}

// Result returns the whole answer. Allowed reports whether the units can be used
// at once; if not, RetryAfter is the Delay.
func (r *Reservation) Result() Result {
	if r == nil || !r.ok && r.res.RetryAfter == 0 {
		return Result{RetryAfter: Never, Source: SourceInvalid}
	}
	return r.res
}

// Cancel refunds the units, as far as they still count. Only the first call has an
// effect. Use it for work that will not be done. Reservations made
// later keep their delays: the part of the units that keeps them in order is refunded
// when they have been served or cancelled, too.
func (r *Reservation) Cancel() {
	if r != nil && r.cancel != nil && r.cancelled.CompareAndSwap(false, true) {
		r.cancel()
	}
}
