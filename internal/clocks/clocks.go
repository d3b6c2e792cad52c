// Package clocks is what limiters need of a [clock.Clock] besides its reading.
package clocks

import (
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
)

// steady reports whether the readings of c never go back: it is [clock.System], [clock.Coarse] or
// what [Forward] returns, and none of these can be set.
func steady(c clock.Clock) bool {
	switch c.(type) {
	case clock.System, *clock.Coarse, *forward:
		return true
	}
	return false
}

// Forward returns a clock that shows what c shows, or [clock.System] if c is nil, and never goes
// back: when c is set back, it stands still until c has caught up.
func Forward(c clock.Clock) clock.Clock {
	if c = Or(c); steady(c) {
		return c
	}
	return &forward{of: c}
}

// forward is a clock that cannot be set back.
type forward struct {
	of     clock.Clock
	latest atomic.Int64
}

// Ahead returns by how much the wall clock is ahead.
func (f *forward) Ahead() time.Duration { return Ahead(f.of) }

// Now returns the latest reading.
func (f *forward) Now() time.Duration {
	t := int64(f.of.Now())
	for {
		last := f.latest.Load()
		if t <= last && last != 0 {
			return time.Duration(last)
		}
		if f.latest.CompareAndSwap(last, t) {
			return time.Duration(t)
		}
	}
}

// Ahead returns by how much the wall clock is ahead of c. A clock says so by a method Ahead. One without
// that method shows the time of day itself: then it is 0.
func Ahead(c clock.Clock) time.Duration {
	switch c := c.(type) {
	case *clock.Coarse:
		return clock.System{}.Ahead()
	case interface{ Ahead() time.Duration }:
		return c.Ahead()
	}
	return 0
}

// Or returns c, or [clock.System] if c is nil. System follows the time of a bubble of testing/synctest.
func Or(c clock.Clock) clock.Clock {
	if c == nil {
		return clock.System{}
	}
	return c
}

// Until returns how long it is, on the clock of the operating system, until the given time: how long a
// context lasts whose deadline that is. It is negative when the time has passed.
func Until(t time.Time) time.Duration { return time.Until(t) }
