package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit/remote"
)

// beat is a heartbeat under way. It is also the probe of servers that were
// away, and the check of shards that have nothing to send.
type beat struct {
	id     uint64
	at     int64   // pace
	sent   int64   // local time
	node   string  // that it enters, and whose records it asks for
	shards []int   // that it asks
	acked  []int64 // per shard: acknowledged under that name when the beat was sent
	turns  int64   // all shards are asked in so many beats
}

func (c *core) sendBeat() {
	b := &beat{id: c.newID(), at: c.now, sent: c.local, node: c.node}
	b.shards, b.turns = c.asked()
	if c.alarm {
		c.alarm, c.hurry = false, b.turns
	}
	for _, i := range b.shards {
		acked := c.shards[i].acked
		if c.shards[i].node != b.node {
			acked = 0
		}
		b.acked = append(b.acked, acked)
	}
	if !c.waiting() {
		c.stats.behind.Store(0)
	}
	c.beat = b
	c.stats.beats.Add(1)
	c.emit(efBeat{id: b.id, node: b.node, shards: b.shards})
}

// waiting reports whether any shard has something to send.
func (c *core) waiting() bool {
	for i := range c.shards {
		if c.shards[i].waits() {
			return true
		}
	}
	return false
}

// asked returns the shards that the next heartbeat asks, and in how many turns
// all are that there is a reason to ask.
//
// A single server is asked for a few at a time, in turns: however slow it is, it
// must be able to answer a heartbeat in time, or no node would ever return to
// one that is merely slow.
func (c *core) asked() (list []int, turns int64) {
	n, most, wanted, spare := len(c.shards), len(c.shards), 0, -1
	if c.cfg.oneServer {
		most = max(c.cfg.shardsPerPipe, n/maxTurns)
		if c.downAt != 0 {
			most = c.cfg.resyncPipe
		}
	}
	next := c.beatTurn
	for k := range n {
		i := (c.beatTurn + k) % n
		switch {
		case !c.wanted(&c.shards[i]):
			// One that was never written only says that it could be.
			if spare < 0 || c.shards[spare].seq == 0 && c.shards[i].seq > 0 {
				spare = i
			}
		case len(list) < most:
			list, next = append(list, i), i+1
			wanted++
		default:
			wanted++
		}
	}
	if len(list) == 0 && (c.shards[spare].seq > 0 || c.doubt || c.downAt != 0) {
		// The list of nodes does not say whether a batch would be taken: it may
		// be fine although none would, or broken although all would.
		list, next = []int{spare}, spare+1
	}
	c.beatTurn = next % n
	return list, int64(max(1, (wanted+most-1)/most))
}

// wanted reports whether there is a reason to ask for a shard.
func (c *core) wanted(s *shard) bool {
	switch {
	case !c.cfg.oneServer && (!s.offset.known || c.downAt != 0 || c.rounds.fails > 0 || c.doubt):
		// On a cluster a shard is asked before it is ever used, for its clock;
		// and all are while some are away, to learn which.
		return true
	case s.health == down:
		return true
	case s.seq == 0:
		return false
	}
	// A batch that leaves before the next heartbeat will tell whether Redis
	// still has what it was told.
	at, _ := c.due(s)
	tells := s.pipe != 0 || at != 0
	return s.health != healthy || s.rounds.fails > 0 || s.suspect || !tells
}

// maxTurns is in how many heartbeats a single server is asked for all shards, at
// the most.
const maxTurns = 16

// pause returns how long after b the next heartbeat leaves, if all is well.
func (c *core) pause(b *beat) int64 {
	if c.hurry--; c.alarm || c.hurry > 0 {
		return 0
	}
	c.hurry = 0
	d := c.cfg.heartbeat / b.turns
	return c.jitter(max(d, min(c.cfg.heartbeat, 5*int64(time.Millisecond))), 0.9, 1)
}

func (c *core) onBeat(ev evBeat) {
	b := c.beat
	if b == nil || b.id != ev.id {
		return
	}
	c.beat, c.doubt = nil, ev.err != nil
	if len(ev.beat.Seqs) != len(b.shards) {
		// Nothing is known of any shard.
		if ev.beat = (remote.Beat{}); ev.err == nil {
			ev.err = errMissingReply
		}
	}
	if ev.err == nil || ev.beat.Nodes > 0 {
		c.guess(b.sent, ev.recv, ev.beat.Now)
	}
	failing := c.beatShards(b, ev)
	if ev.beat.Nodes > 0 {
		c.noteLayouts(ev.beat.Others) // after a loss that this beat has shown
	}
	if ev.err == nil || ev.beat.Nodes > 0 {
		c.countNodes(int64(ev.beat.Nodes)) // last: a loss keeps them from falling
	}
	switch {
	case ev.err == nil:
		c.beatAt = max(b.at+c.pause(b), c.now)
	case len(failing) == 0 && len(b.shards) > 0:
		// Only the list of nodes is broken, or its server away: no hurry.
		c.beatAt = max(b.at+c.pause(b), c.now)
		c.failed(b.at, nil, ev.err, false)
	default:
		c.beatAt = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
		c.failed(b.at, failing, ev.err, c.silent(b, ev, failing))
	}
	if ev.err == nil || ev.beat.Nodes > 0 || len(failing) < len(b.shards) {
		c.reached(b, failing)
	}
}

// silent reports whether a heartbeat that has failed speaks for all of Redis.
func (c *core) silent(b *beat, ev evBeat, failing []int) bool {
	if ev.beat.Nodes > 0 || len(failing) < len(b.shards) {
		return false
	}
	return c.cfg.oneServer || len(b.shards) == len(c.shards)
}

// beatShards takes note of what a heartbeat tells of each shard, and returns
// those that it did not reach.
func (c *core) beatShards(b *beat, ev evBeat) (failing []int) {
	taken := false
	for i, sh := range b.shards {
		if i >= len(ev.beat.Seqs) || ev.beat.Seqs[i] < 0 {
			failing = append(failing, sh)
			continue
		}
		s := &c.shards[sh]
		if i < len(ev.beat.Times) {
			c.sample(sh, b.sent, ev.recv, ev.beat.Times[i])
		}
		if s.node != b.node {
			continue // it tells of another name than the shard has
		}
		taken = taken || ev.beat.Seqs[i] > s.seq // a number that we have not given yet
		// What was acknowledged before the beat left must be there.
		if ev.beat.Seqs[i] < b.acked[i] && !s.lost && !s.accept {
			c.noteLoss(s)
			s.accept = s.flight == nil // a flight on its way finds out by itself
		}
	}
	if taken {
		c.rename()
	}
	return failing
}
