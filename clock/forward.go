package clock

import (
	"sync/atomic"
	"time"
)

// ForwardOf returns a reader of c, or of the default clock if c is nil, that never goes
// back: when somebody sets c back, it stands still until c has caught up.
func ForwardOf(c Clock) Reader {
	r := ReaderOf(c)
	if !r.Steady() {
		r = Reader{clock: &forward{of: r.clock}, forward: true}
	}
	return r
}

// forward is a clock that nobody can set back.
type forward struct {
	of     Clock
	latest atomic.Int64
}

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
