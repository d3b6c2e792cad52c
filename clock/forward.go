package clock

import (
	"sync/atomic"
	"time"
)

// steady reports whether the readings of c never go back: it is [System], [Coarse] or
// what [Forward] returns, and none of these can be set.
func steady(c Clock) bool {
	switch c.(type) {
	case System, *Coarse, *forward:
		return true
	}
	return false
}

// Forward returns a clock that shows what c shows, or [System] if c is nil, and never goes
// back: when c is set back, it stands still until c has caught up.
func Forward(c Clock) Clock {
	if c = Or(c); steady(c) {
		return c
	}
	return &forward{of: c}
}

// forward is a clock that cannot be set back.
type forward struct {
	of     Clock
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
