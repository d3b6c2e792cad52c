package decision

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// reservation is the answer of the limiters to Reserve.
type reservation struct {
	res       limit.Result
	ok        bool
	refund    func()                          // nil: nothing to refund in memory
	call      func(ctx context.Context) error // nil: nothing to refund in Redis
	cancelled atomic.Bool
}

// Reserved returns an OK reservation with an answer of a limiter in memory. refund is called
// once at most; nil: there is nothing to refund.
func Reserved(res limit.Result, refund func()) limit.Reservation {
	return &reservation{res: res, ok: true, refund: refund}
}

// ReservedRemotely is Reserved for units that Redis has booked.
func ReservedRemotely(res limit.Result, refund func(context.Context) error) limit.Reservation {
	return &reservation{res: res, ok: true, call: refund}
}

// NotReserved returns a reservation that is not OK.
func NotReserved(res limit.Result) limit.Reservation { return &reservation{res: res} }

func (r *reservation) OK() bool             { return r.ok }
func (r *reservation) Delay() time.Duration { return r.res.RetryAfter }
func (r *reservation) Result() limit.Result { return r.res }

func (r *reservation) Cancel(ctx context.Context) error {
	if r.cancelled.Load() {
		return nil
	}
	if r.call != nil && ctx != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case !r.cancelled.CompareAndSwap(false, true):
	case r.refund != nil:
		r.refund()
	case r.call != nil:
		return r.call(ctx)
	}
	return nil
}
