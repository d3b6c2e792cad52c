package hybrid

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// sendBeat sends a heartbeat.
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
	ef := efBeat{id: b.id, timeout: c.beatDeadline(), node: b.node, shards: b.shards}
	if h := &c.notices; h.channel != "" {
		ef.channel, ef.echo = h.channel, h.beatsWith()
	}
	c.emit(ef)
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

// pause returns how long after b was sent the next heartbeat is, if none fails.
func (c *core) pause(b *beat) int64 {
	if c.beats.directly() {
		return 0
	}
	d := c.cfg.heartbeat / b.beatsForAll
	return c.jitter(max(d, min(c.cfg.heartbeat, 5*int64(time.Millisecond))), 0.9, 1)
}

// onBeat handles the end of a heartbeat.
func (c *core) onBeat(ev evBeat) {
	b := c.beats.current
	if b == nil || b.id != ev.id {
		return
	}
	c.beats.end(ev.err != nil, ev.err != nil && isTimeout(ev.err))
	if len(ev.beat.Seqs) != len(b.shards) {
		// Then nothing is known about any shard.
		if ev.beat = (redisstore.Beat{}); ev.err == nil {
			ev.err = errMissingReply
		}
	}
	c.place(ev.addrs) // by the clocks as they were known before
	listed := ev.err == nil || ev.beat.Nodes > 0
	if listed {
		c.sample(c.shards[0].server, b.sent, ev.recv, int64(ev.beat.Now))
	}
	all := c.beatShards(b, ev)
	c.place(ev.addrs) // and by what the heartbeat has shown of them
	// After beatShards: a loss that it has noticed holds the number of nodes.
	if listed {
		c.noteLayouts(ev.beat.Others)
		c.noteChannel(ev.beat)
		c.countNodes(int64(ev.beat.Nodes))
	}
	all = c.ofList(all, ev, listed)
	failing := slices.ContainsFunc(all, func(a answer) bool { return a.err != nil })
	c.beats.next = max(b.at+c.pause(b), c.now)
	switch {
	case failing:
		c.beats.next = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
	case ev.err != nil:
		c.noteFailure(ev.err) // only the list of nodes is broken: go on as usual
		c.stats.failed(c.lastReason)
	default:
		c.stats.answered(c.now-b.at, c.local)
	}
	found := false
	class := c.exchangeEnded(b.at, all, func(v *server) {
		found = true
		if c.reached(v); ev.err == nil { // else the answers of others were waited for until the deadline
			v.load.distance.answered(c.now, c.now-b.at)
		}
	})
	if failing && c.count(down) > 0 {
		c.scheduleProbe(class)
	}
	if found && c.members.waitsForAnswer() && c.count(down) == 0 { // an outage has ended, or Redis has answered for the first time
		c.downAt = 0
		c.members.hold(c.now + max(beatsToReturn*c.cfg.heartbeat, c.cfg.maxBackoff))
	}
}

// ofList adds the answer about the list of nodes, which is on the server of shard 0, to the
// answers of a heartbeat, unless that server has answered for a shard.
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

// beatShards handles what a heartbeat says about each shard, and returns for which shards
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
		now := s.numberAt
		if i < len(ev.beat.Times) {
			now = int64(ev.beat.Times[i])
			c.sample(s.server, b.sent, ev.recv, now)
		}
		if s.node != b.node {
			continue // the record is that of another name than the shard uses
		}
		taken = taken || ev.beat.Seqs[i] > s.seq // a number that this node has not used yet
		// Redis must have what it had acknowledged before the heartbeat was sent.
		if ev.beat.Seqs[i] < b.acked[i] && !s.lost && !s.accept {
			c.noteLoss(s, now)
			s.accept = s.flight == nil // a flight under way is answered that data was lost
		}
		s.numberAt = now
	}
	if taken {
		c.rename()
	}
	return all
}
