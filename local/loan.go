package local

import (
	"math"
	"math/bits"

	"github.com/hybridlimit/hybridlimit/limit"
)

// What counters lend to slots. A funnel lends what it holds, and units that may be
// admitted as that leaks. A window lends units that fit until its current bucket ends:
// until then its oldest one fades, and what fits now goes on fitting.

// loan is what a counter lends: units, or the end of a refusal.
type loan struct {
	refusal uint32 // in refusalUnit; 0: units
	hold    int64  // see slot
	left    uint16
	source  limit.Source
}

// loanLatest is until when, in ns, slots count as counters do. Not long after that the
// times of full funnels end.
const loanLatest = math.MaxInt64 / 2

// loanLocked says what c can lend.
func (c *Counter) loanLocked(now int64) (l loan, ok bool) {
	if until := c.denied.Load(); until != 0 {
		l.refusal, l.source = uint32(until/refusalUnit), limit.Source(until&sourceBits)
		return l, lasts(until, now) && l.refusal != 0
	}
	if c.brisk == 0 {
		return l, false
	}
	room := maxPart - c.pendUnits()
	if c.part() != nil && !c.is(inUrgent) {
		room = int64(c.urgentAt) - 1 - c.pendUnits() // more are urgent
	}
	l.source = c.brisk.source()
	if w := c.win(); w != nil {
		room = min(room, w.room(c.rule(), c.last))
		l.hold, ok = w.end-w.off, w.steady(c.part())
	} else if f, r := &c.funnel, c.rule(); f.view == f.pend.tat {
		l.hold, ok = r.ToTicks(r.Sub(f.view, limit.Span{NS: c.last}))
	}
	l.left = uint16(min(max(room, 0), math.MaxUint16))
	return l, ok && l.left > 0
}

// lasts reports whether a refusal goes on long enough for a slot, which does not know the
// end as exactly as the counter does.
func lasts(until, now int64) bool { return until/refusalUnit > now/refusalUnit }

// room returns how many units fit at now and, if there are no more, until the current
// bucket ends.
func (w *window) room(r *limit.Rule, now int64) int64 {
	room := r.Limit() - w.newer
	if w.oldest == 0 || room <= 0 {
		return room
	}
	// What is left of the oldest bucket is oldest·(width − elapsed)/width, rounded up.
	width := uint64(r.Width())
	hi, lo := bits.Mul64(uint64(w.oldest), width-uint64(w.elapsed(r, now)))
	fading, rest := bits.Div64(hi, lo, width) // no more than oldest, as elapsed is at least 0
	if rest > 0 {
		fading++
	}
	return room - int64(fading)
}

// bookLoanLocked counts units that c lends as admitted.
func (c *Counter) bookLoanLocked(n int64) {
	if w := c.win(); w != nil {
		w.book(n, n)
		return
	}
	c.funnel.pend.units += n
}

// returnLocked gives c back what it has lent to s. Both are locked.
func (s *slot) returnLocked(c *Counter) {
	if label(s.label.Load()).refusal() == 0 {
		left := int64(s.left)
		if w := c.win(); w != nil {
			w.pend[0] -= left // still the bucket that it was: c was not locked since
			w.pendUnits -= left
			w.newer -= left
		} else {
			f, r := &c.funnel, c.rule()
			f.view = r.Add(limit.Span{NS: s.last}, r.OfTicks(s.hold))
			f.pend.tat = f.view
			f.pend.units -= left
		}
		c.last = max(c.last, s.last)
	}
	s.left = 0
	s.season.Store(0)
	s.label.Store(uint64(newLabel(0, 0, label(s.label.Load()).source(), 0))) // for countLocked
	s.c.Store(nil)
	c.slot.Store(nil)
}

// admitLocked admits one unit of those lent under a rule, if it fits.
func (s *slot) admitLocked(rule *limit.Rule, now, refresh int64) bool {
	now = max(now, s.last)
	idle := now - s.last
	if s.left == 0 || idle >= refresh {
		return false
	}
	if t := rule.Ticks(); t.PerNS != 0 {
		if idle > t.Most || now > loanLatest {
			return false
		}
		hold := max(s.hold-idle*t.PerNS, 0)
		if hold > t.Full-t.One { // a debt may be too high to add to
			return false
		}
		s.hold = hold + t.One
	} else if now >= s.hold {
		return false
	}
	s.last = now
	s.left--
	s.taken++
	return true
}
