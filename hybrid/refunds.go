package hybrid

import "slices"

// After a loss of data a unit may be booked twice: that errs on the safe side. A refund
// must not be applied twice, because more than the limit would be admitted.
//
// As long as Redis has the record of the latest flight (its number and its nonce), the
// record prevents both. If the record is lost, nobody can tell whether a flight without an
// answer was booked before; so its refunds are given up. The first flight under a name has
// no record to compare with, so its refunds are given up after the first attempt without an
// answer.

// noteUnanswered notes that it is unknown whether Redis has booked the flight of s. While
// Redis is told to accept a flight, it does not compare the flight with its record. A
// flight with refunds must be compared, because it may have been booked and the record lost
// after that.
func (s *shard) noteUnanswered() {
	if s.flight == nil {
		return
	}
	s.flight.maybeBooked = true
	s.flight.unanswered++
	if slices.ContainsFunc(s.flight.items, func(it item) bool { return it.back }) {
		s.accept = false
	}
}

// giveUpRefunds removes the refunds from the flight of s if Redis may have applied them
// already. Their units count again on this node, because Redis may not have applied them.
func (c *core) giveUpRefunds(s *shard) {
	if s.flight == nil || !s.flight.maybeBooked {
		return
	}
	for i := range s.flight.items {
		if it := &s.flight.items[i]; it.back {
			c.giveUpRefund(it)
		}
	}
}

func (c *core) giveUpRefund(it *item) {
	it.c.KeepSentBack(c.local)
	it.back = false
	c.stats.givenUp.Add(1)
}
