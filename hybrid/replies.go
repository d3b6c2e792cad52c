package hybrid

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// onReplies handles the end of a pipeline. Each batch in it has fared on its
// own.
func (c *core) onReplies(ev evReplies) {
	p := c.pipes[ev.id]
	if p == nil {
		return // it timed out before; its flights are on their way again
	}
	p.load.slots++
	all, failed := make([]answer, 0, len(p.shards)), false
	for i, sh := range c.unpack(ev.id) {
		s := &c.shards[sh]
		err := errMissingReply
		if i < len(ev.outcomes) {
			err = ev.outcomes[i].Err
		}
		switch {
		case err == nil:
			c.sampleShard(sh, p.sent, ev.recv, int64(ev.outcomes[i].Reply.Now))
			c.onReply(s, ev.outcomes[i].Reply, p.sent, ev.recv)
		case errors.Is(err, redisstore.ErrInvalidBatch):
			c.abandon(s, err)
			continue
		case redisstore.MayHaveRun(err):
			s.unanswered()
		}
		all, failed = append(all, answer{shard: sh, err: err}), failed || err != nil
	}
	switch {
	case !failed:
		p.load.budget.answered(p.cost, c.now-p.at)
	case timedOut(ev.outcomes):
		p.load.budget.timedOut(p.cost)
	}
	c.batchesFared(p.at, all)
}

// batchesFared takes note of what has become of a pipeline that began at a time.
func (c *core) batchesFared(began int64, all []answer) {
	before := c.count(down)
	if class := c.fared(began, all, c.booked); c.count(down) > before { // else the next probe is planned
		due := c.beatAt
		c.scheduleProbe(class)
		c.beatAt = min(c.beatAt, due)
	}
}

// timedOut reports whether something that was sent has got no answer in time.
func timedOut(outcomes []redisstore.Outcome) bool {
	return slices.ContainsFunc(outcomes, func(o redisstore.Outcome) bool {
		_, reason := redisstore.Classify(o.Err)
		return reason == "timeout"
	})
}

// unpack ends a pipeline, whatever has become of it, and returns its shards.
func (c *core) unpack(id uint64) []int {
	p := c.pipes[id]
	delete(c.pipes, id)
	for _, sh := range p.shards {
		c.shards[sh].pipe = 0
	}
	if p.load.paced == id {
		p.load.paced = 0
		p.load.paceAt = c.now + c.cfg.resyncPaceMin + c.jitter(c.cfg.resyncRange, 0, 1)
	}
	return p.shards
}

// abandon takes apart a flight that was not sent because it contradicts
// itself. That would be a bug here; it must not keep the rest of the shard
// from being told, so its keys are set aside as if Redis had refused them.
func (c *core) abandon(s *shard, err error) {
	c.stats.badReplies.Add(1)
	c.giveUpRefunds(s)
	for _, it := range s.flight.items {
		c.onKeyError(it, err)
	}
	c.endFlight(s)
}

// endFlight makes room for the next flight of a shard, which is counted under the
// name that the node has by now.
func (c *core) endFlight(s *shard) {
	if s.flight, s.asks = nil, false; s.node != c.node {
		s.begin(c.node)
	}
}

// onTimeout handles an exchange that has overrun its deadline: its fate is
// unknown, so what it carried is to be sent again. Its slot stays taken until
// the call returns, so that a client that ignores deadlines cannot pile up
// goroutines.
func (c *core) onTimeout(id uint64) {
	if c.beat != nil && c.beat.id == id {
		c.onBeat(evBeat{id: id, err: errTimeout})
		return
	}
	p := c.pipes[id]
	if p == nil {
		return
	}
	p.load.budget.timedOut(p.cost)
	c.overdue[id] = p.load
	var all []answer
	for _, sh := range c.unpack(id) {
		c.shards[sh].unanswered()
		all = append(all, answer{shard: sh, err: errTimeout})
	}
	c.batchesFared(p.at, all)
}

// onReply handles what Redis says of one batch.
func (c *core) onReply(s *shard, r redisstore.Reply, sent, recv int64) {
	f := s.flight
	if f != nil {
		f.silent = 0
	}
	switch r.Fate {
	case redisstore.FateApplied, redisstore.FateDuplicate, redisstore.FateEarlier:
		if s.asks || f != nil && r.Fate == redisstore.FateEarlier {
			c.fate(s, r)
			return
		}
		if f == nil || len(r.States) != len(f.items) {
			c.stats.badReplies.Add(1)
			return
		}
		c.settle(s, f, r, sent, recv)
	case redisstore.FateLost:
		c.noteLoss(s)
		c.giveUpRefunds(s)
		s.asks = false
		// The batch was not applied: send it again, with all we know. If that
		// is not accepted either, asking at once would not help.
		s.retry = 0
		if s.accept {
			c.stats.badReplies.Add(1)
			s.retry = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
		}
		s.accept = true
	default: // another, or a later one, under our name
		c.nameTaken(s)
	}
}

// settle ends a flight that Redis has booked.
func (c *core) settle(s *shard, f *flight, r redisstore.Reply, sent, recv int64) {
	server, offset := int64(r.Now), s.server.offset.ns
	a := table.Answer{
		At: min(max(server-offset, sent), recv), ServerNow: server,
		Slack: max(recv-sent, 0) + int64(time.Millisecond),
	}
	s.acked, s.accept, s.lost = s.seq, false, false
	// The answer was to the old name: Redis has to have a record of the new one, see rename.
	renamed := s.node != c.node
	c.endFlight(s)
	for i, it := range f.items {
		st := r.States[i]
		if st.Err != nil {
			it.booked = it.booked || st.Booked
			c.onKeyError(it, st.Err)
			continue
		}
		st.Forgiven += it.forgiven // one of them is 0
		c.stats.acked.Add(it.units - st.Forgiven)
		c.stats.forgiven.Add(st.Forgiven)
		if it.back {
			c.stats.returned.Add(1)
		}
		a.Rule, a.Raised, a.Gen, a.Born, a.Level = it.rule, it.raised, st.Gen, st.Born, st.Level
		a.Buckets, a.Converted, a.Forgiven = toLocal(st.Buckets), st.Converted, st.Forgiven
		out := it.c.Settle(c.local, a)
		if renamed && it.c.Refresh() {
			out.Again = true
		}
		c.afterSettle(it.c, out)
	}
}

// onKeyError puts a key aside that Redis could not use although the rest of
// its batch was fine.
func (c *core) onKeyError(it item, err error) {
	var key *limit.KeyError
	if it.booked {
		c.stats.acked.Add(it.units - it.forgiven)
		c.stats.forgiven.Add(it.forgiven)
		if it.back {
			c.stats.returned.Add(1)
		}
	}
	reason := err.Error()
	if errors.As(err, &key) {
		reason = key.Reason
	}
	if !it.c.Quarantined() {
		c.happened(Event{Kind: EventQuarantined, Reason: "redis cannot use the key: " + reason, Key: it.c.Key(), Err: err})
	}
	first := it.c.Quarantine(c.local, it.booked)
	c.stats.quarantined.Add(1)
	if first {
		c.wounded = append(c.wounded, quarantined{it.c, c.now + c.cfg.quarantine})
	}
}

func (c *core) afterSettle(ctr *table.Counter, o table.Outcome) {
	if o.Lost {
		c.stats.rolledBack.Add(1)
	}
	c.stats.noteOvershoot(o.Overshoot)
	if o.Again {
		c.enqueue(ctr, false)
	}
	if o.Urgent {
		c.enqueue(ctr, true)
	}
}

// noteLoss records that Redis has lost the data of a shard, once per loss,
// and arranges for everything known of it to be told anew.
func (c *core) noteLoss(s *shard) {
	if s.lost {
		return
	}
	s.lost, s.reseed = true, true
	c.stats.losses.Add(1)
	c.holdNodes(max(c.floorTo, c.now+beatsToReturn*c.cfg.heartbeat))
	if c.reseed == 0 {
		// A loss rarely comes alone: let the other shards report theirs, and
		// look at those that have nothing to send.
		c.reseed = c.now + c.cfg.linger*10
		c.alarm, c.beatAt = true, c.now
	}
}

// reseedNow queues every counter that knows something of a lost shard.
func (c *core) reseedNow() {
	c.reseed = 0
	c.happened(Event{Kind: EventDataLost, Reason: fmt.Sprintf("redis has lost data, and is told what is known of it: %d of %d shards", c.toReseed(), len(c.shards))})
	c.each(func(k *table.Counter) bool {
		s := &c.shards[k.Shard(c.local, c.keys.Shard)]
		if s.reseed && k.MarkRaise(c.local) {
			s.normal = append(s.normal, queued{k, c.now})
			s.normalAt = c.now
		}
		return true
	})
	for i := range c.shards {
		c.shards[i].reseed = false
	}
}

func (c *core) toReseed() (n int) {
	for i := range c.shards {
		if c.shards[i].reseed {
			n++
		}
	}
	return n
}

// happened tells of an event.
func (c *core) happened(e Event) {
	e.Time = time.Unix(0, c.local)
	c.emit(efEvent{e})
}

// countNodes takes over the number of live nodes. It falls to the most that has
// been told for a heartbeat and a half: when Redis has lost the list, every
// node that lives enters itself again within one, and not everybody notices
// the loss at once.
func (c *core) countNodes(n int64) {
	if c.now < c.floorTo {
		n = max(n, c.floor)
	}
	switch {
	case n < 1:
		return
	case n >= c.nodes:
		c.fallAt = 0
	case c.fallAt == 0:
		c.fall, c.fallAt = n, c.now
		return
	case c.now-c.fallAt < c.cfg.heartbeat*3/2:
		c.fall = max(c.fall, n)
		return
	default:
		n, c.fallAt = max(c.fall, n), 0
	}
	if n == c.nodes {
		return
	}
	c.nodes = n
	c.link.SetNodes(n)
	c.applyWeight()
}

// holdNodes keeps the number of nodes from falling for as long as all of them
// need to enter themselves anew: after an outage, after Redis has lost
// their entries, and at the start of a fleet of known size. Otherwise the first to come back would take itself for the
// only one, and the whole limit with it should Redis go away again.
func (c *core) holdNodes(until int64) {
	c.floor, c.floorTo = max(c.nodes, 1), until
}

// beatsToReturn is how many heartbeats (or the longest pause between probes)
// the nodes are given to come back.
const beatsToReturn = 4
