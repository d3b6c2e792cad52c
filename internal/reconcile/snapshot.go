package reconcile

import (
	"slices"
	"time"
)

// Snapshot is the part of a machine's state that tests look at: a copy, see [Machine.Snapshot]. It has
// what no effect and no event shows, and none of it is an input of the machine.
type Snapshot struct {
	Nodes       int64   // live nodes, as far as this one knows
	Beat        uint64  // id of the heartbeat under way; 0: none
	Asked       []int   // the shards that it asks for
	Pipelines   [][]int // under way, by the shards in them
	Shards      []ShardSnapshot
	Servers     []ServerSnapshot
	Later       int           // counters that report later
	Broken      int           // counters whose keys Redis cannot use
	Flushes     int           // that have not ended
	Overdue     int           // pipelines that have timed out, and whose calls have not returned
	Outage      bool          // a server is down, or was and its shards have not caught up
	Subscribed  bool          // the notices of other nodes arrive
	Addressable int           // counters that notices can be about
	FirstBudget time.Duration // what a pipeline might cost Redis when the machine was new
}

// ShardSnapshot is what a [Snapshot] has of a shard.
type ShardSnapshot struct {
	Server     int    // index in Servers; -1: none there has it
	Node       string // the node's name with the numbers below
	Seq, Acked int64  // numbers of the latest flight, and of the latest that Redis has applied
	Flight     FlightSnapshot
	Queued     int  // places of counters in queues
	Missed     bool // Redis has not yet applied all that it has missed in an outage
	Multiplied bool // its units count with the cost multiplier of the fallback policy
	Lost       bool // a loss of data was noticed, and is not repaired yet
}

// FlightSnapshot is what a [Snapshot] has of a flight.
type FlightSnapshot struct {
	Nonce   uint64
	Keys    int    // counters in it; 0: there is no flight
	First   string // the key of the first
	Late    int    // attempts that had no answer in time
	Refunds int    // counters that hand units back
}

// ServerSnapshot is what a [Snapshot] has of a server.
type ServerSnapshot struct {
	Address            string // empty: unknown
	Shards             []int
	Up, Down           bool          // neither: that is not known yet, or not all that was missed is applied
	FailedRounds       int           // of exchanges that it did not answer
	Slots              int           // how many more pipelines may be started
	Paced              bool          // one with what was missed is under way
	Offset             time.Duration // of its clock
	Distance           time.Duration // the shortest round trip of late; 0: not known
	Budget, MostBudget time.Duration // what a pipeline may cost it
}

// Snapshot puts the part of the state that tests look at into is, and uses the memory of is again.
func (c *Machine) Snapshot(is *Snapshot) {
	*is = Snapshot{
		Nodes:       c.members.count,
		Asked:       is.Asked[:0],
		Pipelines:   is.Pipelines[:0],
		Shards:      is.Shards[:0],
		Servers:     slices.Grow(is.Servers[:0], len(c.servers))[:len(c.servers)], // with their content, whose memory is used again
		Later:       c.wheel.held,
		Broken:      c.broken.held,
		Flushes:     len(c.flushes),
		Overdue:     len(c.overdue),
		Outage:      c.count(down) > 0 || c.outageAt != 0,
		Subscribed:  c.notices.receives(),
		Addressable: len(c.notices.byID),
		FirstBudget: time.Duration(newBudget(c.cfg.CommandTimeout).ns),
	}
	if b := c.beats.current; b != nil {
		is.Beat, is.Asked = b.id, append(is.Asked, b.shards...)
	}
	for _, p := range c.pipes {
		is.Pipelines = append(is.Pipelines, slices.Clone(p.shards))
	}
	for i := range c.shards {
		is.Shards = append(is.Shards, c.shards[i].snapshot())
	}
	for k, v := range c.servers {
		v.snapshot(&is.Servers[k])
		for _, i := range v.shards {
			if c.shards[i].server == v {
				is.Shards[i].Server = k
			}
		}
	}
}

func (s *shard) snapshot() ShardSnapshot {
	is := ShardSnapshot{
		Server: -1, Node: s.node, Seq: s.seq, Acked: s.acked, Queued: len(s.normal) + s.urgent.len() + len(s.backlog),
		Missed: s.missed, Multiplied: s.multiplied, Lost: s.lost,
	}
	if f := s.flight; f != nil && len(f.items) > 0 {
		is.Flight = FlightSnapshot{Nonce: f.nonce, Keys: len(f.items), First: f.items[0].c.Key(), Late: f.late}
		for i := range f.items {
			if f.items[i].back {
				is.Flight.Refunds++
			}
		}
	}
	return is
}

func (v *server) snapshot(is *ServerSnapshot) {
	l := v.load
	*is = ServerSnapshot{
		Address: v.name, Shards: append(is.Shards[:0], v.shards...), Up: v.health == up, Down: v.health == down, FailedRounds: v.rounds.fails,
		Slots: l.slots, Paced: l.paced != 0, Offset: time.Duration(v.offset.ns),
		Distance: time.Duration(l.distance.ns()), Budget: time.Duration(l.budget.ns), MostBudget: time.Duration(l.budget.most),
	}
}
