package hybrid

import "github.com/hybridlimit/hybridlimit/internal/table"

// shard is the state of one group of keys.
type shard struct {
	server   *server
	rounds   round // of exchanges for it that failed
	failing  int64 // pace, when the first of those began
	missed   bool  // there was an outage, and it is not told all of it yet
	weighted bool  // its units count by the fallback policy

	node     string // the name under which these are counted: the core's, or until the flight ends the one before
	seq      int64  // number of the latest flight
	acked    int64  // number of the latest flight that Redis has booked
	flight   *flight
	asksFate bool   // only the fate of the flight is asked for, under the next number
	rest     []item // of a flight that was taken apart: they travel before all others
	pipe     uint64 // pipeline that carries the flight now; 0: none
	accept   bool   // Redis has lost this shard's number: have it take ours
	lost     bool   // a loss is known and not repaired yet
	retry    int64  // do not send the flight again before

	normal, urgent, backlog []queued
	normalAt, urgentAt      int64 // when the queue is due; 0: it is empty
	takenNormal             int64 // counters ever taken from normal and backlog
	takenUrgent             int64
	reseed                  bool
	prune                   int // look for dead counters in normal when it is as long
}

// queued is a counter that is to report, and when it was put into its queue.
type queued struct {
	c  *table.Counter
	at int64 // pace
}

// minPrune is the shortest queue that is searched for dead counters. While
// Redis is away nobody takes counters out of the queues, but the table goes on
// forgetting them.
const minPrune = 64

// waits reports whether s has something to send, or has sent something.
func (s *shard) waits() bool {
	return s.unsettled() || len(s.normal)+len(s.urgent)+len(s.backlog) > 0
}

// unsettled reports whether something was sent that Redis has not answered yet.
func (s *shard) unsettled() bool { return s.flight != nil || len(s.rest) > 0 }

// owed reports whether Redis is still to be told of what it may have missed.
func (s *shard) owed() bool { return s.unsettled() || len(s.backlog) > 0 }

// well reports whether the server of s can be reached and has been told all.
func (s *shard) healthy() bool { return s.server.health == up && !s.missed }

// isApart reports whether a flight is under way in parts.
func (s *shard) isApart() bool { return len(s.rest) > 0 || s.flight != nil && s.flight.part }

// begin counts the flights of a shard under another name. That Redis has no record
// of them is not a loss.
func (s *shard) begin(node string) { s.node, s.seq, s.acked, s.asksFate = node, 0, 0, false }

// due returns when s has something to send (0: nothing, or not in this
// state), and whether anything is waiting at all.
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
