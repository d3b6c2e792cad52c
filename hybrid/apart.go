package hybrid

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A flight that takes Redis longer than an exchange may last would be sent again, the
// same, for ever. So after two time-outs only its fate is asked for: by a batch without
// operations, under the next number and the same nonce, which costs Redis next to
// nothing. Either Redis has booked the flight: then its counters are only to be read. Or
// it has not, and never will, because a later number is booked now: then they are to be
// told anew. Both is done in smaller flights.

// maxUnanswered is how many times in a row a flight gets no answer before its fate is asked
// for. The first time it is sent again: mostly just the answer was lost, and to ask would
// take two exchanges that can be lost as well.
const maxUnanswered = 2

// mustAsk reports whether it is time to ask for the fate of the flight of s. One of a
// single key cannot be made smaller.
func (s *shard) mustAsk() bool {
	return s.flight.unanswered >= maxUnanswered && len(s.flight.items) > 1 && !s.asksFate
}

// ask has the fate of the flight asked for. While Redis is told to accept whatever comes
// it could not say.
func (s *shard) ask() {
	s.asksFate, s.accept = true, false
	s.seq++
}

// fate handles what Redis says of a flight whose fate was asked for, or that was sent again
// under another number after a loss although it had arrived after that.
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
			c.onKeyError(it, &limit.KeyError{Key: c.keys.CounterKey(it.rule, it.c.Key()), Reason: "failed when the batch was applied"})
			continue
		case booked && !it.booked:
			it.booked, it.forgiven = true, r.Forgiven[i]
		}
		s.rest = append(s.rest, it)
	}
	c.endFlight(s)
}
