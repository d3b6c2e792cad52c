package reconcile

import (
	"fmt"
	"math"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// shard is the state of one group of keys.
type shard struct {
	server     *server
	rounds     round // failed exchanges for this shard
	missed     bool  // there was an outage, and Redis has not yet applied all that it has missed
	healthyAt  int64 // since when it is healthy, on the counter clock; 0: it is not
	asked      bool  // callers ask it themselves: heartbeats see whether it can be reached
	multiplied bool  // its units count with the cost multiplier of the fallback policy

	node     string // the node's name with the numbers below: after a renaming the old one until the flight ends
	seq      int64  // number of the latest flight
	acked    int64  // number of the latest flight that Redis has applied
	flight   *flight
	pipe     uint64 // id of the pipeline that carries the flight; 0: none
	accept   bool   // Redis has lost the number of this shard, and is to accept ours
	lost     bool   // a loss of data was noticed, and is not repaired yet
	repaired int64  // number of the flight that has repaired the latest loss; 0: there was none
	reseed   bool   // what is known of this shard is to be sent again
	outlived bool   // no data was lost: the record of the numbers is older than Redis keeps it
	numberAt int64  // when Redis last showed its record of the numbers, by its clock, ns
	retry    int64  // the flight is not sent again before this

	normal, backlog    []queued
	urgent             urgentQueue
	normalAt, urgentAt int64 // when the queue is due; 0: it is empty
	filledAt           int64 // when the latest flight was made
	prune              int   // length of normal at which evicted counters are removed from it
}

// queued is a counter that is to report.
type queued struct {
	c  *counter.Counter
	at int64 // when it was queued, on the timer clock
}

// minPrune is the shortest queue that is searched for evicted counters. While Redis is
// unreachable no counter leaves the queues, but the table goes on evicting counters.
const minPrune = 64

// waits reports whether s has something to send, or has sent something.
func (s *shard) waits() bool {
	return s.flight != nil || len(s.normal)+s.urgent.len()+len(s.backlog) > 0
}

// oldest returns when the counter was queued that has waited the longest for Redis' answer, on the timer
// clock.
func (s *shard) oldest() int64 {
	at := s.urgent.oldest(math.MaxInt64)
	for _, queue := range [...][]queued{s.backlog, s.normal} {
		if len(queue) > 0 {
			at = min(at, queue[0].at)
		}
	}
	if s.flight != nil {
		at = min(at, s.flight.oldest)
	}
	return at
}

// owed reports whether s has something to send that Redis may have missed in an outage.
func (s *shard) owed() bool { return s.missed && (s.flight != nil || len(s.backlog) > 0) }

// healthy reports whether the server of s can be reached and has applied what it had missed.
func (s *shard) healthy() bool { return s.server.health == up && !s.missed }

// begin starts to number the flights of s anew, under another name of the node. That Redis
// has no record under that name is not a loss.
func (s *shard) begin(node string) { s.node, s.seq, s.acked, s.repaired = node, 0, 0, 0 }

// acceptNext has Redis apply the flight of s, or the next one, although it has lost the record of the numbers.
// The number moves by a random distance. A copy of this process that goes by the same name, and has not noticed
// the loss, would else take the new record for that of its own flight before, and have what it hands back
// applied a second time. It moves once: an attempt under the new number may be under way already.
func (s *shard) acceptNext(random uint64) {
	s.accept = true
	if s.seq <= s.acked+1 {
		s.seq += 1 + int64(random%mostSkipped)
	}
}

// mostSkipped is how many numbers are skipped at the most: few enough that they never run out.
const mostSkipped = 1 << 20

// due returns when s may send something, 0 for not before an event.
func (s *shard) due() int64 {
	switch v := s.server; {
	case v.health == down || !v.offset.known || !s.waits():
		return 0
	case s.owed():
		return max(s.retry, v.load.paceAt, 1)
	case v.health != up:
		return 0
	case s.flight != nil:
		return max(s.retry, 1)
	}
	if s.normalAt == 0 || s.urgentAt != 0 && s.urgentAt < s.normalAt {
		return s.urgentAt
	}
	return s.normalAt
}

// noteLoss records that Redis has lost the data of a shard, once per loss, and schedules
// that everything this node knows of the shard is sent again. now is when that was found, on
// Redis' clock. If the record was older than Redis keeps it, it has just expired, which is no
// sign of a loss. What is known is sent all the same, because data may have been lost too.
func (c *Machine) noteLoss(s *shard, now int64) {
	if s.lost {
		return
	}
	s.lost, s.reseed = true, true
	if s.outlived = now-s.numberAt >= int64(redisstore.LedgerTTL); !s.outlived {
		c.stats.Losses.Add(1)
	}
	c.members.hold(max(c.members.atLeastUntil, c.now+beatsToReturn*c.cfg.HeartbeatInterval))
	if c.reseedAt == 0 {
		// A loss rarely concerns one shard alone. Wait until the others have noticed theirs, and
		// ask for those that have nothing to send.
		c.reseedAt = c.now + linger*10
		c.beats.next = c.now
	}
}

// reseedNow queues every counter that knows a state of a shard whose data was lost.
func (c *Machine) reseedNow() {
	c.reseedAt = 0
	c.each(func(k *counter.Counter) bool {
		s := &c.shards[k.Shard()]
		if s.reseed && k.MarkRestore(c.local) {
			s.normal = append(s.normal, queued{k, c.now})
			s.normalAt = c.now
		}
		return true
	})
	lost := 0
	for i := range c.shards {
		s := &c.shards[i]
		if s.reseed && !s.outlived {
			lost++
		}
		s.reseed = false
	}
	if lost > 0 {
		c.happened(Incident{Kind: DataLost, Reason: fmt.Sprintf("redis has lost data, and is sent what this node knows of it: %d of %d shards", lost, len(c.shards))})
	}
}

// rename gives the node a new name, because another process was seen to report under the present one.
//
// A shard whose flight may have been applied under the old name keeps that name until it is
// known whether it was. The other shards use the new name at once. The next heartbeat
// enters the new name into the list of live nodes.
//
// All counters are then reported. Only where Redis has a record of the node can a heartbeat
// show that Redis has lost data, and the new name has no record yet.
func (c *Machine) rename() {
	old := c.node
	c.node = c.ids.Name()
	c.happened(Incident{Kind: Renamed, Reason: fmt.Sprintf("another process reports as %s, perhaps a copy of this one; this one is %s now", old, c.node)})
	c.stats.Renames.Add(1)
	c.emit(NewName{c.node})
	c.notices.channel = "" // the next heartbeat subscribes to the echo of the new name
	for i := range c.shards {
		if s := &c.shards[i]; s.flight == nil {
			s.begin(c.node)
		}
	}
	c.refreshAll()
}

// nameTaken handles the answer that Redis has applied a batch of another process under the
// number of the flight of s, or a later one. The flight cannot be applied under that name any
// more, so it is sent again under the new name of the node.
func (c *Machine) nameTaken(s *shard) {
	c.giveUpRefunds(s) // Redis may have applied the flight before the other batch
	if s.node == c.node {
		c.rename()
	}
	s.begin(c.node)
	s.seq = 1
	s.retry = c.now + c.jitter(retryPause, 0.5, 1.5)
}
