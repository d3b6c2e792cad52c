package hybrid

import (
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
)

// readerOf returns a reader of c that never goes back.
func readerOf(c clock.Clock) clock.Reader {
	r := clock.ReaderOf(c)
	if !r.Steady() {
		r = clock.ReaderOf(&forward{of: c})
	}
	return r
}

// forward is a clock that nobody can set back. When that which it reads is, it stands
// still until that has caught up: a counter would refuse to go back, and what it then
// heard from Redis would not fit.
type forward struct {
	of     clock.Clock
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
