package clock

import "time"

// Reader reads a clock: [System], [TSC] and [Coarse] without an interface call,
// which is as long as it takes to decide. Build it with [ReaderOf]; the zero
// Reader reads the system's clock.
type Reader struct {
	clock   Clock   // of another kind
	coarse  *Coarse // or nil
	tsc     bool
	forward bool // clock is one that stands still rather than go back
}

// ReaderOf returns a reader of c, or of the default clock if c is nil.
func ReaderOf(c Clock) Reader {
	switch c := Or(c).(type) {
	case System:
		return Reader{}
	case TSC:
		return Reader{tsc: true}
	case *Coarse:
		return Reader{coarse: c}
	default:
		return Reader{clock: c}
	}
}

// Steady reports whether what r shows never goes back, whatever becomes of the clock: it
// is one that nobody can set, or r is one of [ForwardOf].
func (r *Reader) Steady() bool { return r.clock == nil || r.forward }

// Now returns what the clock shows. That of [TSC] is here once more, because what a call
// takes is a good part of the whole.
func (r *Reader) Now() time.Duration {
	if r.tsc {
		l := timeline.Load()
		if d := cycles() - l.from; d < l.cycles {
			return l.after(d)
		}
		return renew(l)
	}
	return r.other()
}

func (r *Reader) other() time.Duration {
	switch {
	case r.coarse != nil:
		return r.coarse.Now()
	case r.clock != nil:
		return r.clock.Now()
	}
	return System{}.Now()
}
