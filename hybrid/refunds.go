package hybrid

import "slices"

// A unit may be booked twice after a loss of data: that is the safe side. What is
// handed back must not be, or more would be admitted than the limit. The ledger sees to
// it, as for units, as long as Redis has it. Once Redis has lost it, nobody can tell
// whether a flight that got no answer was booked before: its refunds are given up. So are
// those of the first flight under a name as soon as it has got no answer: that Redis has
// no ledger then says nothing.

// unanswered notes that nobody knows what has become of the flight of s. If it hands
// something back Redis shall look into its ledger again, which it does not while it is
// told to accept whatever comes: it may have booked the flight, and lost the ledger.
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

// giveUpRefunds keeps a flight that Redis does not know any more from handing anything
// back if it may have done so before. What the authority may not have taken off counts
// here again.
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
