package remote

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Reservation is the answer to [Limiter.Reserve]: units that may be used after a
// delay, or the news that there are none. The zero Reservation is not OK. It is
// safe for concurrent use and must not be copied.
type Reservation struct{ made *redisstore.Reservation }

// Reserve takes n units of key that may be used later. Only a leaky bucket can be
// booked ahead: its units queue, and Delay is how long until the n fit. They
// count in Redis at once, so that everybody else comes after them. OK is false,
// and nothing is consumed, for more units than the leaky bucket holds and for a delay
// above [limit.MaxWindow].
//
// A window and a log count what has happened, and have no place for units of
// the future: those that would be free at some time are anybody's until then.
// Their units are reserved if they are admitted now; if not, OK is false and
// Delay is when to come back.
//
// A dry run is always OK and never delayed; its units are consumed if they fit.
//
// The errors are those of [Limiter.Take]; with an error there is no reservation.
func (l *Limiter) Reserve(ctx context.Context, key string, rule *limit.Rule, n int64) (*Reservation, error) {
	made, err := l.asks.Reserve(ctx, key, rule, n)
	if err != nil {
		return nil, err
	}
	return &Reservation{made}, nil
}

// OK tells whether the units are the caller's, after Delay.
func (r *Reservation) OK() bool { return r != nil && r.made.OK() }

// Delay returns how long after the call of Reserve the units may be used; it
// does not count down. If there are none: the shortest time after which asking
// again may help, or [limit.Never].
func (r *Reservation) Delay() time.Duration {
	if r == nil {
		return limit.Never
	}
	return r.made.Delay()
}

// Cancel hands the units back, for what will not happen: once, however often it
// is called and by however many goroutines at a time; the others return nil at
// once. Like every call of this package it is executed once at most: with an
// error it is unknown whether they were handed back, and asking again does
// nothing. If ctx is over already nothing is asked, and Cancel may be tried
// again. A reservation that is nil or not OK holds nothing. If units came back the nodes of
// package hybrid hear of it, see [Limiter.Set].
//
// Until Delay has passed all of them come back, unless others have booked behind.
// Those keep their times, so that newcomers would be admitted at these times once
// more: while the leaky bucket is fuller than full, only what was booked last comes back.
// Of a leaky bucket's units that could have been used since, only those come back that
// have not leaked: the others have made room for somebody else. Units of a window
// that is over, or from before a reset, count no longer.
//
// Redis does not know which reservations are cancelled. If several are, at
// different times after their delays, each hands back up to as much as has leaked
// meanwhile of those that were cancelled before it and booked before it.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r == nil {
		return nil
	}
	return r.made.Cancel(ctx)
}
