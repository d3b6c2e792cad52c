package hybrid

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A flight that occupies Redis for longer than an exchange may last would time out and be
// sent again for ever. So after maxUnanswered attempts only its fate is asked for: by a
// batch without operations, with the next number and the same nonce, which costs Redis next
// to nothing.
//
// If Redis has booked the flight, what is left to do is to read the state of its keys. If
// it has not, it never will, because the number of the question is later; then the units
// are reported again. Either is done in smaller flights.

// maxUnanswered is after how many attempts without an answer the fate of a flight is asked
// for. After the first one the flight is sent again: mostly just the answer was lost, and a
// question needs two exchanges.
const maxUnanswered = 2

// mustAsk reports whether to ask for the fate of the flight of s. A flight with a single
// key is always sent again, because it cannot be split.
func (s *shard) mustAsk() bool {
	return s.flight.unanswered >= maxUnanswered && len(s.flight.items) > 1 && !s.asksFate
}

// ask makes the next batch of s a question for the fate of its flight. Redis must not be
// told to accept the question: then it would not compare the nonce.
func (s *shard) ask() {
	s.asksFate, s.accept = true, false
	s.seq++
}

// fate handles the answer that says whether a flight was booked, and splits the flight. The
// answer came to a question, or to a flight that was sent again under another number after
// a loss of data, although its first attempt had been booked after that loss.
func (c *core) fate(s *shard, r redisstore.Reply) {
	f := s.flight
	booked := r.Fate == redisstore.FateEarlier
	if booked && (r.Earlier <= s.acked || r.Earlier >= s.seq) {
		c.stats.badReplies.Add(1)
		s.retry = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
		return
	}
	s.acked = s.seq
	if booked {
		s.acked = r.Earlier // the number of the question was not used
	}
	s.accept, s.lost = false, false
	for i, it := range f.items {
		switch {
		case booked && slices.Contains(r.Failed, i):
			c.onKeyError(it, &limit.KeyError{Key: c.nameOf(it.c, it.rule), Reason: "failed when the batch was applied"})
			continue
		case booked && !it.booked:
			it.booked, it.forgiven = true, r.Forgiven[i]
		}
		s.rest = append(s.rest, it)
	}
	c.endFlight(s)
}
