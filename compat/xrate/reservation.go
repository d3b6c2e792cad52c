package xrate

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Reservation is what [Limiter.ReserveN] returns: events that may happen after a delay. It is safe for
// concurrent use. A nil or zero Reservation is not OK.
type Reservation struct {
	limiter *Limiter
	ok      bool
	at      time.Time         // when the events may happen
	units   limit.Reservation // nil if there is no limit: then nothing was taken
}

// Reserve is [Limiter.ReserveN] for one event.
func (l *Limiter) Reserve() *Reservation {
	if l == nil {
		return &Reservation{}
	}
	return l.ReserveN(l.time(), 1)
}

// ReserveN takes the tokens for n events, and returns how long the caller must wait before they happen. It
// never blocks. t must be the present time, see [MaxSkew]. The reservation is not OK for more events than the
// burst, for fewer than 0, or if nothing is admitted at all.
func (l *Limiter) ReserveN(t time.Time, n int) *Reservation {
	s, ok := l.setting()
	switch {
	case !ok:
		return &Reservation{}
	case s.free(n):
		return &Reservation{limiter: l, ok: true, at: t}
	case !l.timely(t, s):
		return &Reservation{}
	}
	units := l.base.ReserveN(l.key, s.rule, int64(n))
	if units == nil || !units.OK() {
		return &Reservation{}
	}
	r := &Reservation{limiter: l, ok: true, at: t, units: units}
	if d := units.Delay(); d > 0 {
		// The limiter has counted d from a reading of its own, before this one: so at is a little late, and never early.
		r.at = l.time().Add(d)
	}
	return r
}

// OK reports whether the events may happen, after [Reservation.Delay].
func (r *Reservation) OK() bool { return r != nil && r.ok }

// Delay is [Reservation.DelayFrom] for the present time.
func (r *Reservation) Delay() time.Duration {
	if !r.OK() {
		return rate.InfDuration
	}
	return r.DelayFrom(r.limiter.time())
}

// DelayFrom returns how long it is from t until the events may happen, 0 if they may happen at once. It is
// [rate.InfDuration] if the reservation is not OK.
func (r *Reservation) DelayFrom(t time.Time) time.Duration {
	if !r.OK() {
		return rate.InfDuration
	}
	return max(r.at.Sub(t), 0)
}

// Cancel is [Reservation.CancelAt] for the present time.
func (r *Reservation) Cancel() {
	if r.OK() {
		r.CancelAt(r.limiter.time())
	}
}

// CancelAt hands the tokens back, as far as nobody has reserved behind them: see [limit.Reservation.Cancel].
// It does nothing if the reservation is not OK, if the events could have happened before t, or if it was
// canceled before. A time that is more than [MaxSkew] off the limiter's clock is counted, and replaced by that
// of the clock.
func (r *Reservation) CancelAt(t time.Time) {
	if !r.OK() || r.units == nil {
		return
	}
	if s, _ := r.limiter.setting(); !r.limiter.timely(t, s) {
		t = r.limiter.time()
	}
	if !r.at.Before(t) {
		_ = r.units.Cancel(context.Background()) // in memory: there is no error
	}
}
