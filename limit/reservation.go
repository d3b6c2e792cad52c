package limit

import (
	"sync/atomic"
	"time"
)

// Reservation is units that were booked for a caller who is willing to wait for
// them. It is safe for concurrent use. The zero Reservation is not OK.
type Reservation struct {
	res  Result
	ok   bool
	held *held // nil: nothing to hand back
}

// held is what the copies of a reservation share.
type held struct {
	given  atomic.Bool
	cancel func()
}

// NewReservation returns a reservation with the given answer. If it is OK, the
// units may be used after res.RetryAfter, and cancel, called once at most,
// hands them back; nil if there is nothing to hand back.
func NewReservation(ok bool, res Result, cancel func()) Reservation {
	r := Reservation{res: res, ok: ok}
	if ok && cancel != nil {
		r.held = &held{cancel: cancel}
	}
	return r
}

// OK tells whether the units are the caller's, after Delay.
func (r Reservation) OK() bool { return r.ok }

// Delay returns how long the caller must wait, from the call of Reserve on,
// before using the units. If the reservation is not OK, it is the shortest time
// after which it could be, or [Never].
func (r Reservation) Delay() time.Duration {
	if !r.ok && r.res.RetryAfter == 0 {
		return Never // the zero Reservation
	}
	return r.res.RetryAfter
}

// Result returns the whole answer. Allowed tells whether the units can be used
// at once; if not, RetryAfter is the Delay.
func (r Reservation) Result() Result { return r.res }

// Cancel hands the units back, as far as they still count. Only the first call does
// something, whichever copy it is made on. Use it for what will not happen. Callers
// who have reserved later keep their delays: what they need of the queue is handed
// back when they are served or have cancelled, too.
func (r Reservation) Cancel() {
	if r.held != nil && r.held.given.CompareAndSwap(false, true) {
		r.held.cancel()
	}
}
