package local

import (
	"math"

	"github.com/hybridlimit/hybridlimit/limit"
)

// What counters lend to slots and pockets. A funnel lends what it holds, and units that may be
// admitted as that leaks. A window lends units that fit until its current bucket ends:
// until then more and more of its oldest one leaves, and what fits now goes on fitting.

// loan is what a counter lends: units, or the end of a refusal.
type loan struct {
	refusal int64 // until when, ns; 0: units
	hold    int64 // of a funnel: what it holds, in ticks. Of a window: until when it lends, ns
	left    int64
	source  limit.Source
}

// loanLatest is until when, in ns, counters lend. Not long after that the times at which
// full funnels are empty end.
const loanLatest = math.MaxInt64 / 2

// loanLocked says what c can lend.
func (c *Counter) loanLocked() (l loan, ok bool) {
	if until := c.denied.Load(); until != 0 {
		l.refusal, l.source = until&^sourceBits, limit.Source(until&sourceBits)
		return l, true
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
	l.left = min(max(room, 0), loanMost)
	return l, ok && l.left > 0
}

// room returns how many units fit at now and, if there are no more, until the current
// bucket ends.
func (w *window) room(r *limit.Rule, now int64) int64 {
	return r.Limit() - w.newer - w.still(r, now, w.oldest)
}

// bookLoanLocked counts units that c lends as admitted. When the last of them comes,
// takeBackLocked notes: nobody looks at c before.
func (c *Counter) bookLoanLocked(n int64) {
	if w := c.win(); w != nil {
		w.add(n, n)
		return
	}
	c.funnel.pend.units += n
	c.indebtLocked(n)
}

// takeBackLocked takes back what is left of a loan of units, of which w is the last word.
func (c *Counter) takeBackLocked(t *terms, w uint64, lent uint32) {
	left := int64(unitsOf(w))
	win := c.win()
	if left < int64(lent) {
		c.last = max(c.last, t.askedLast(w))
		if win != nil {
			win.came(c.rule(), c.last)
		}
	}
	if win != nil {
		win.pend[0] -= left // still the bucket that it was: c was not locked since
		win.pendUnits -= left
		win.newer -= left
		return
	}
	f, r := &c.funnel, c.rule()
	f.view = r.Add(limit.Span{NS: t.base}, r.OfTicks(t.floor(int64(w>>wordTime))))
	f.pend.tat = f.view
	f.pend.units -= left
	c.indebtLocked(-left)
}
