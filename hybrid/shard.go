package hybrid

import "github.com/hybridlimit/hybridlimit/internal/counter"

// shard is the state of one group of keys.
type shard struct {
	server      *server
	rounds      round // of exchanges for this shard that failed
	failedSince int64 // when the first of those was sent, on the timer clock
	missed      bool  // there was an outage, and not all of what Redis has missed is booked yet
	multiplied  bool  // its units count with the cost multiplier of the fallback policy

	node     string // the node's name in the numbers below: after a renaming the old one until the flight ends
	seq      int64  // number of the latest flight
	acked    int64  // number of the latest flight that Redis has booked
	flight   *flight
	asksFate bool   // send a question for the fate of the flight, under the number seq
	rest     []item // of a flight that was split: these travel before all others
	pipe     uint64 // id of the pipeline that carries the flight; 0: none
	accept   bool   // Redis has lost the number of this shard, and is to accept ours
	lost     bool   // a loss of data was noticed, and is not repaired yet
	reseed   bool   // what is known of this shard is to be sent again
	outlived bool   // nothing was lost: the numbers are older than Redis keeps them
	numberAt int64  // when Redis last showed its record of the numbers, by its clock, ns
	retry    int64  // the flight is not sent again before this

	normal, urgent, backlog []queued
	normalAt, urgentAt      int64    // when the queue is due; 0: it is empty
	boardedAt               int64    // when the latest flight was made
	takenNormal             int64    // how many counters were ever taken from normal and backlog
	takenUrgent             int64    // and from urgent
	pressing                []queued // of urgent, those that overtake the others
	prune                   int      // length of normal at which it is searched for dead counters
}

// queued is a counter that is to report.
type queued struct {
	c  *counter.Counter
	at int64 // when it was queued, on the timer clock
}

// minPrune is the shortest queue that is searched for dead counters. While Redis is
// unreachable no counter leaves the queues, but the table goes on evicting counters.
const minPrune = 64

// waits reports whether s has something to send, or has sent something.
func (s *shard) waits() bool {
	return s.unsettled() || len(s.normal)+len(s.urgent)+len(s.backlog) > 0
}

// unsettled reports whether s has sent something and does not know yet that it is booked.
func (s *shard) unsettled() bool { return s.flight != nil || len(s.rest) > 0 }

// owed reports whether s has something to send that Redis may have missed in an outage.
func (s *shard) owed() bool { return s.unsettled() || len(s.backlog) > 0 }

// healthy reports whether the server of s can be reached and has booked what it had missed.
func (s *shard) healthy() bool { return s.server.health == up && !s.missed }

// isApart reports whether a flight of s was split and is under way in parts.
func (s *shard) isApart() bool { return len(s.rest) > 0 || s.flight != nil && s.flight.part }

// begin starts to number the flights of s anew, under another name of the node. That Redis
// has no record under that name is not a loss.
func (s *shard) begin(node string) { s.node, s.seq, s.acked, s.asksFate = node, 0, 0, false }

// due returns when s may send something, 0 for not before an event, and whether it has
// something to send at all.
func (s *shard) due() (at int64, waiting bool) {
	v := s.server
	waiting = s.waits()
	switch {
	case v.health == down || !v.offset.known || !waiting:
		return 0, waiting
	case s.missed && s.owed():
		return max(s.retry, v.load.paceAt, 1), true
	case v.health != up:
		return 0, true
	case s.unsettled():
		return max(s.retry, 1), true
	}
	if at = s.normalAt; at == 0 || s.urgentAt != 0 && s.urgentAt < at {
		at = s.urgentAt
	}
	return at, true
}
