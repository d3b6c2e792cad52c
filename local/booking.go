package local

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Booking is what a reservation holds of a counter.
//
// To give a booking of a funnel up is not just to lower the level. Those who
// have booked behind it keep their times: newcomers would be admitted at the same
// times once more. Let x be the time at which a funnel is empty that sees nothing
// but the bookings that are still waiting, each when it is due. While the level
// does not fall below x, whoever comes finds as much of the capacity taken as
// those who wait will use of it. What cannot be handed back because of them
// comes back when they have given up, too, as far as it has not leaked by then.
//
// Where the funnel is shared, who else waits is known only to the others. A
// booking keeps the funnel fuller than full until it is due, and nobody lowers it
// further while anybody may wait. So nobody waits if the level is within the
// capacity. If it is above, only the end of the queue is handed back, and only
// if nobody else has booked behind or between.
type Booking struct {
	n   int64 // units that have not been handed back
	due int64 // when they may be used, ns
	era uint32

	// begin and end are when the funnel was to be empty before and after the
	// booking, less what was handed back since of what is due before it. So end is
	// never later than when the funnel is empty, less what may be used after due. Of
	// another counter end is when the units count no longer.
	begin, end limit.Span

	vague   bool // booked in an outage: what the units weigh is not known
	gone    bool // given up
	mixed   bool // the authority has lowered the level since: others may be behind
	dropped bool // one of too many, see maxDue
}

// maxDue bounds the bookings of a key that are remembered although they are due.
// Of more than so many that have not leaked, the earliest cannot be handed back.
const maxDue = 1024

// waits reports whether others must leave room for b.
func (b *Booking) waits(now int64) bool { return !b.gone && b.due > now }

// still returns how many units of b count still, and what they take to leak. The
// others have leaked, or left a window, and made room for somebody else: to hand
// them back would take off newer ones in their place. The part of a unit that has
// not leaked counts as one.
func (b *Booking) still(r *limit.Rule, now int64) (n int64, cost limit.Span) {
	left := r.Sub(b.end, limit.Span{NS: now})
	cost = r.Cost(b.n)
	switch {
	case b.vague:
		return b.n, cost
	case left == limit.Span{}:
		return 0, limit.Span{}
	case r.Algorithm() != limit.AlgorithmFunnel || b.due >= now || !left.Less(cost):
		return b.n, cost
	}
	return min(b.n, wholeUp(r, left)), left
}

// wholeUp returns how many units a span is worth in a funnel, rounded up.
func wholeUp(r *limit.Rule, s limit.Span) int64 {
	n := r.Whole(s)
	if r.Cost(n).Less(s) {
		n++
	}
	return n
}

// noteBookingLocked notes that n units were booked with the answer res, in a
// funnel that was to be empty at begin.
func (c *Counter) noteBookingLocked(now, n int64, begin limit.Span, res limit.Result) *Booking {
	s := c.tell() // from now on there is an era to tell apart
	b := &Booking{n: n, due: now + int64(res.RetryAfter), era: s.era, vague: res.Source == limit.SourceDegraded}
	if c.alg() != limit.AlgorithmFunnel {
		b.end = limit.Span{NS: now + int64(res.ResetAfter)}
		return b
	}
	b.begin, b.end = begin.Max(limit.Span{NS: now}), c.funnel.view
	if n > 0 {
		c.tidyLocked(now)
		c.enqueueLocked(b)
	}
	return b
}

// enqueueLocked puts b before the bookings that are due later. There are some if
// what was handed back has made room for b before them.
func (c *Counter) enqueueLocked(b *Booking) {
	s, r := c.tell(), c.rule()
	k, cost := len(s.booked), r.Sub(b.end, b.begin)
	for ; k > 0 && s.booked[k-1].due > b.due; k-- {
		behind := s.booked[k-1]
		own := r.Cost(behind.n)
		b.begin, b.end = r.Sub(b.begin, own), r.Sub(b.end, own)
		behind.begin, behind.end = r.Add(behind.begin, cost), r.Add(behind.end, cost)
	}
	s.booked = slices.Insert(s.booked, k, b)
}

// tidyLocked forgets the bookings that matter no longer.
func (c *Counter) tidyLocked(now int64) {
	s := c.tell()
	s.booked = slices.DeleteFunc(s.booked, func(b *Booking) bool {
		n, _ := b.still(c.rule(), now)
		return n == 0 && !b.waits(now)
	})
	for len(s.booked) > maxDue && s.booked[0].due <= now {
		s.booked[0].dropped = true
		s.booked = s.booked[1:]
	}
}

// leastLocked returns the time at which the funnel must not be empty before,
// because of bookings that wait.
func (c *Counter) leastLocked(now int64) (least limit.Span) {
	for _, b := range c.told().booked {
		switch {
		case !b.waits(now):
		case c.link() == nil:
			least = c.rule().Add(least.Max(limit.Span{NS: b.due}), c.rule().Cost(b.n))
		default:
			least = least.Max(b.end)
		}
	}
	return least
}

// fullLocked reports whether somebody may wait for a funnel that is shared.
func (c *Counter) fullLocked(now int64) bool {
	return c.link() != nil && c.rule().Add(limit.Span{NS: now}, c.rule().Full()).Less(c.funnel.view)
}

// givenUpLocked returns how many units are to be handed back now that b is given
// up, as far as nobody waits behind, and what they take to leak.
func (c *Counter) givenUpLocked(now int64, b *Booking) (n int64, cost limit.Span) {
	s, r := c.tell(), c.rule()
	switch {
	case b.era != s.era, b.dropped: // it went with a reset
		return 0, cost
	case c.alg() != limit.AlgorithmFunnel:
		return b.still(r, now)
	}
	if b.gone = true; !slices.Contains(s.booked, b) { // the counter has been replaced
		s.booked = slices.Insert(s.booked, 0, b)
	}
	all, end := !c.fullLocked(now), c.funnel.view
	for _, b := range slices.Backward(s.booked) {
		if !all && (!b.gone || b.mixed || b.end != end) {
			break
		}
		if b.gone {
			units, span := b.still(r, now)
			n, cost = n+units, r.Add(cost, span)
		}
		end = b.begin
	}
	return n, cost
}

// handedBackLocked notes that n units of bookings that are given up were handed
// back, the last first.
func (c *Counter) handedBackLocked(now, n int64) {
	s, r := c.tell(), c.rule()
	for k, b := range slices.Backward(s.booked) {
		if !b.gone {
			continue
		}
		off, cost := b.still(r, now)
		if n < off {
			off, cost = n, r.Cost(n)
		}
		b.n, b.end, n = b.n-off, r.Sub(b.end, cost), n-off
		for _, behind := range s.booked[k+1:] {
			behind.begin, behind.end = r.Sub(behind.begin, cost), r.Sub(behind.end, cost)
		}
	}
	c.tidyLocked(now)
}

// loweredLocked notes that the newest units that were used have been handed back.
// They came before the bookings that have not been used.
func (c *Counter) loweredLocked(now int64) {
	end, r := c.funnel.view, c.rule()
	for _, b := range slices.Backward(c.told().booked) {
		b.end = earlier(b.end, end)
		if b.gone || b.due > now {
			end = r.Sub(b.end, r.Cost(b.n))
		}
		b.begin = earlier(b.begin, end)
	}
}

// correctedLocked notes that an answer has changed the level of a funnel, which
// was to be empty at was. By less than slack ns it is the same level: the times
// of answers are not known better.
func (c *Counter) correctedLocked(was limit.Span, slack int64) {
	r, view := c.rule(), c.funnel.view
	up, down := r.Sub(view, was), r.Sub(was, view)
	if up.NS > slack || up == down {
		return // others are behind
	}
	for _, b := range c.told().booked {
		b.begin, b.end = r.Sub(r.Add(b.begin, up), down), r.Sub(r.Add(b.end, up), down)
		b.mixed = b.mixed || down.NS > slack
	}
}

// cancel hands back what a booking holds.
func (c *Counter) cancel(now int64, rule *limit.Rule, b *Booking) (back int64, ok bool) {
	c.lock()
	if c.dead {
		c.mu.Unlock()
		return 0, false
	}
	now = c.enterLocked(now, rule)
	if n, cost := c.givenUpLocked(now, b); n > 0 {
		back = c.handBackLocked(now, n, cost, true)
	}
	if c.alg() == limit.AlgorithmFunnel {
		c.handedBackLocked(now, back)
	}
	c.unlockAndTell()
	return back, true
}

// Cancel hands back what a reservation has booked, once, as far as it still
// counts and nobody waits behind it. Nothing is left to hand back if the key was
// reset or set since, in this table.
func (t *Table) Cancel(key string, rule *limit.Rule, now int64, b *Booking) (back int64) {
	t.with(key, rule, now, false, func(c *Counter) (ok bool) {
		if !c.matches(key, rule) {
			return true
		}
		back, ok = c.cancel(now, rule, b)
		return ok
	})
	return back
}

// Cancel is [Table.Cancel] of one counter. ok is false if it is dead.
func (c *Counter) Cancel(now int64, rule *limit.Rule, b *Booking) (back int64, ok bool) {
	return c.cancel(now, rule, b)
}
