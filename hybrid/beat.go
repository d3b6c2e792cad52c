package hybrid

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

func (c *core) sendBeat() {
	b := &beat{id: c.newID(), at: c.now, sent: c.local, node: c.node}
	b.shards, b.beatsForAll = c.shardsToAsk()
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
	c.beats.begin(b)
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
func (c *core) shardsToAsk() (list []int, turns int64) {
	turns = 1
	var seen []*load
	for k, v := range c.servers {
		if slices.Contains(seen, v.load) {
			continue
		}
		seen = append(seen, v.load)
		var shards []int
		for _, o := range c.servers[k:] {
			if o.load == v.load {
				shards = append(shards, o.shards...)
			}
		}
		some, of := c.shardsToAskOf(v.load, shards)
		list, turns = append(list, some...), max(turns, of)
	}
	return list, turns
}

// shardsToAskOf does so for shards that may be on one server: a few at a time, in turns. However
// slow it is, it must be able to answer a heartbeat in time, or no node would ever return
// to one that is merely slow.
func (c *core) shardsToAskOf(l *load, shards []int) (list []int, turns int64) {
	n, gone, wanted, spare := len(shards), 0, 0, -1
	for _, i := range shards {
		if c.shards[i].server.health == down {
			gone++
		}
	}
	most := max(c.cfg.shardsPerPipe, n/maxBeatsForAll)
	if gone > n/2 {
		most = c.cfg.resyncPipe
	}
	next := l.nextAsked % n
	for k := range n {
		at := (l.nextAsked + k) % n
		i := shards[at]
		switch {
		case !c.reasonToAsk(i):
			// One that was never written only says that it could be.
			if spare < 0 || c.shards[shards[spare]].seq == 0 && c.shards[i].seq > 0 {
				spare = at
			}
		case len(list) < most:
			list, next = append(list, i), at+1
			wanted++
		default:
			wanted++
		}
	}
	if len(list) == 0 && c.shards[shards[spare]].seq > 0 {
		list, next = []int{shards[spare]}, spare+1
	}
	l.nextAsked = next % n
	return list, int64(max(1, (wanted+most-1)/most))
}

// wanted reports whether there is a reason to ask for a shard.
func (c *core) reasonToAsk(i int) bool {
	s := &c.shards[i]
	switch v := s.server; {
	case v.health == down, !v.offset.known && v != c.shards[0].server:
		return true
	case (c.beats.lastFailed || c.downAt != 0) && i == v.shards[0]:
		// Each server is asked then. The list of nodes does not say whether a batch would be
		// taken: it may be fine although none would, or broken although all would.
		return true
	case s.seq == 0:
		return false
	case v.health != up || s.missed || v.rounds.fails > 0 || s.rounds.fails > 0:
		return true
	}
	// A batch that leaves before the next heartbeat will tell whether Redis
	// still has what it was told.
	at, _ := s.due()
	return s.pipe == 0 && at == 0
}

// maxBeatsForAll is in how many heartbeats a single server is asked for all shards, at
// the most.
const maxBeatsForAll = 16

// pause returns how long after b the next heartbeat leaves, if all is well.
func (c *core) pause(b *beat) int64 {
	if c.beats.directly() {
		return 0
	}
	d := c.cfg.heartbeat / b.beatsForAll
	return c.jitter(max(d, min(c.cfg.heartbeat, 5*int64(time.Millisecond))), 0.9, 1)
}

func (c *core) onBeat(ev evBeat) {
	b := c.beats.current
	if b == nil || b.id != ev.id {
		return
	}
	c.beats.end(ev.err != nil)
	if len(ev.beat.Seqs) != len(b.shards) {
		// Nothing is known of any shard.
		if ev.beat = (redisstore.Beat{}); ev.err == nil {
			ev.err = errMissingReply
		}
	}
	c.place(ev.addrs) // before it is known what it shows of their clocks
	listed := ev.err == nil || ev.beat.Nodes > 0
	if listed {
		c.sample(c.shards[0].server, b.sent, ev.recv, int64(ev.beat.Now))
	}
	all := c.beatShards(b, ev)
	c.place(ev.addrs)
	if listed {
		c.noteLayouts(ev.beat.Others)      // after a loss that this beat has shown
		c.countNodes(int64(ev.beat.Nodes)) // and that keeps them from falling
	}
	all = c.ofList(all, ev, listed)
	failing := slices.ContainsFunc(all, func(a answer) bool { return a.err != nil })
	c.beats.next = max(b.at+c.pause(b), c.now)
	switch {
	case failing:
		c.beats.next = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
	case ev.err != nil:
		c.stats.failures.Add(1)
		c.noteFailure(ev.err) // only the list of nodes is broken: no hurry
	}
	found := false
	class := c.exchangeEnded(b.at, all, func(v *server) {
		found = true
		c.reached(v)
	})
	if failing && c.count(down) > 0 {
		c.scheduleProbe(class)
	}
	if found && c.members.waitsForAnswer() && c.count(down) == 0 { // an outage is over, or Redis has answered for the first time
		c.downAt = 0
		c.members.hold(c.now + max(beatsToReturn*c.cfg.heartbeat, c.cfg.maxBackoff))
	}
}

// ofList adds to the answers of a heartbeat for shards that of the list of nodes, which is
// on the server of shard 0, if no shard speaks for it.
func (c *core) ofList(all []answer, ev evBeat, listed bool) []answer {
	class, _ := redisstore.Classify(ev.err)
	spoken := slices.ContainsFunc(all, func(a answer) bool { return c.shards[a.shard].server == c.shards[0].server })
	switch {
	case spoken || !listed && class == redisstore.ClassKey || listed && c.shards[0].rounds.fails > 0:
		return all
	case listed:
		return append(all, answer{list: true})
	}
	return append(all, answer{err: ev.err, list: true})
}

// beatShards takes note of what a heartbeat tells of each shard, and returns for which
// there was an answer.
func (c *core) beatShards(b *beat, ev evBeat) (all []answer) {
	taken := false
	for i, sh := range b.shards {
		if i >= len(ev.beat.Seqs) || ev.beat.Seqs[i] < 0 {
			err := ev.err
			if i < len(ev.beat.Errs) {
				err = ev.beat.Errs[i]
			}
			all = append(all, answer{shard: sh, err: err})
			continue
		}
		s := &c.shards[sh]
		all = append(all, answer{shard: sh})
		if i < len(ev.beat.Times) {
			c.sample(s.server, b.sent, ev.recv, int64(ev.beat.Times[i]))
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
	return all
}
