package local

import "github.com/hybridlimit/hybridlimit/limit"

// Booking is what a reservation holds of a counter. To give it back is not just
// to lower the level: others may have booked behind, and keep their times, so
// that newcomers would be admitted at the same times once more. So only the end
// of the queue is given back: with the last booking all before it that have been
// given up already.
type Booking struct {
	n     int64
	due   int64 // when its units may be used, ns
	era   uint32
	ahead bool // it is in the queue
	gone  bool // given up
}

// noteBookingLocked notes a booking of n units that may be used after wait ns.
func (c *Counter) noteBookingLocked(now, n, wait int64) *Booking {
	s := c.tell() // from now on there is an era to tell apart
	b := &Booking{n: n, due: now + wait, era: s.era, ahead: wait > 0}
	if !b.ahead {
		return b
	}
	k := 0
	for k < len(s.ahead) && s.ahead[k].due <= now {
		k++
	}
	s.ahead = append(s.ahead[:0], s.ahead[k:]...)
	s.ahead = append(s.ahead, b)
	return b
}

// givenUpLocked returns how many units are to be handed back now that b is given
// up, still of which would be if it stood alone.
func (c *Counter) givenUpLocked(now, still int64, b *Booking) (n int64) {
	switch {
	case b.era != c.era():
		return 0 // they went with a reset
	case !b.ahead || b.due <= now:
		return still
	}
	b.gone = true
	s := c.tell()
	found := false
	for _, other := range s.ahead {
		found = found || other == b
	}
	if !found {
		return still // the counter has been replaced, and knows of no queue
	}
	for k := len(s.ahead) - 1; k >= 0 && s.ahead[k].gone; k-- {
		n += s.ahead[k].n
		s.ahead = s.ahead[:k]
	}
	return n
}

// cancel hands back what a booking holds, still units if it stands alone.
func (c *Counter) cancel(now, still int64, rule *limit.Rule, b *Booking) (back int64, ok bool) {
	c.lock()
	if c.dead {
		c.mu.Unlock()
		return 0, false
	}
	n := c.givenUpLocked(max(now, c.last), still, b)
	if n == 0 {
		c.mu.Unlock()
		return 0, true
	}
	return c.refundUnlocking(now, n, rule), true
}

// Cancel is Refund of what a reservation has booked, once; still of its units
// count if nobody has booked behind it. Nothing is left to hand back if the key
// was reset or set since, in this table.
func (t *Table) Cancel(key string, rule *limit.Rule, still, now int64, b *Booking) (back int64) {
	t.with(key, rule, now, false, func(c *Counter) (ok bool) {
		if !c.matches(key, rule) {
			return true
		}
		back, ok = c.cancel(now, still, rule, b)
		return ok
	})
	return back
}
