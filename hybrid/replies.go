package hybrid

import (
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/remote"
)

// onReplies handles the end of a pipeline. Each batch in it has fared on its
// own.
func (c *core) onReplies(ev evReplies) {
	p := c.pipes[ev.id]
	if p == nil {
		return // it timed out before; its flights are on their way again
	}
	delete(c.pipes, ev.id)
	c.slots++
	var failed error
	good := false
	for i, sh := range p.shards {
		s := &c.shards[sh]
		s.pipe = 0
		err := errMissingReply
		if i < len(ev.outcomes) {
			err = ev.outcomes[i].Err
		}
		if err == nil {
			good = true
			c.sample(p.sent, ev.recv, ev.outcomes[i].Reply.Now)
			c.onReply(s, ev.outcomes[i].Reply, p.sent, ev.recv)
			continue
		}
		if errors.Is(err, remote.ErrInvalidBatch) {
			c.abandon(s, err)
			continue
		}
		failed = err
		s.retry = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
	}
	if c.state.Mode == Resyncing {
		c.paceAt = c.now + c.cfg.resyncPaceMin + c.jitter(c.cfg.resyncRange, 0, 1)
	}
	if failed != nil {
		c.failed(failed)
	} else if good {
		c.fails = 0
	}
}

// abandon takes apart a flight that was not sent because it contradicts
// itself. That would be a bug here; it must not keep the rest of the shard
// from being told, so its keys are set aside as if Redis had refused them.
func (c *core) abandon(s *shard, err error) {
	c.stats.badReplies.Add(1)
	for _, it := range s.flight.items {
		c.onKeyError(it, err)
	}
	s.flight = nil
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
	delete(c.pipes, id)
	for _, sh := range p.shards {
		s := &c.shards[sh]
		s.pipe = 0
		s.retry = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
	}
	c.failed(errTimeout)
}

// onReply handles what Redis says of one batch.
func (c *core) onReply(s *shard, r remote.Reply, sent, recv int64) {
	f := s.flight
	switch r.Verdict {
	case remote.VerdictApplied, remote.VerdictDuplicate:
		if f == nil || len(r.States) != len(f.items) {
			c.stats.badReplies.Add(1)
			return
		}
		c.settle(s, f, r, sent, recv)
	case remote.VerdictLost:
		c.noteLoss(s)
		s.accept, s.retry = true, 0 // the batch was not applied: send it again, with all we know
	default:
		// Redis claims a later number of ours than we ever gave. Only a broken
		// or forged record can say so; leave it behind.
		c.stats.badReplies.Add(1)
		s.seq = min(s.seq+staleJump, maxSeq)
		s.accept, s.retry = true, c.now+c.jitter(c.cfg.retry, 0.5, 1.5)
	}
}

// staleJump is by how much the numbers jump to leave a forged record behind.
const (
	staleJump = 1 << 48
	maxSeq    = 1<<53 - 2
)

// settle ends a flight that Redis has booked.
func (c *core) settle(s *shard, f *flight, r remote.Reply, sent, recv int64) {
	server := int64(r.Now)
	a := local.Answer{
		At: min(max(server-c.offset.ns, sent), recv), ServerNow: server, Offset: c.offset.ns,
		Slack: max(recv-sent, 0) + int64(time.Millisecond),
	}
	s.acked, s.flight, s.accept, s.lost = s.seq, nil, false, false
	for i, it := range f.items {
		st := r.States[i]
		if st.Err != nil {
			c.onKeyError(it, st.Err)
			continue
		}
		c.stats.acked.Add(it.units)
		a.Rule, a.Raised, a.Gen, a.Level = it.rule, it.raised, st.Gen, st.Level
		a.Buckets, a.Converted = toLocal(st.Buckets), st.Converted
		c.afterSettle(it.c.Settle(c.local, a))
	}
}

// onKeyError puts a key aside that Redis could not use although the rest of
// its batch was fine.
func (c *core) onKeyError(it item, err error) {
	var key *remote.KeyError
	booked := errors.As(err, &key) && key.Booked
	if booked {
		c.stats.acked.Add(it.units)
	}
	ctr, first := it.c.Quarantine(c.local, booked)
	c.stats.quarantined.Add(1)
	if first {
		c.wounded = append(c.wounded, quarantined{ctr, c.now + c.cfg.quarantine})
	}
}

func (c *core) afterSettle(o local.Outcome) {
	ctr := o.Counter
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
		c.beatAt = c.now
	}
}

// reseedNow queues every counter that knows something of a lost shard.
func (c *core) reseedNow() {
	c.reseed = 0
	c.each(func(k *local.Counter) bool {
		s := &c.shards[k.Shard(c.keys.Shard)]
		if s.reseed && k.MarkRaise(c.local) {
			s.normal = append(s.normal, k)
			s.normalAt = c.now
		}
		return true
	})
	for i := range c.shards {
		c.shards[i].reseed = false
	}
}

// sendBeat starts a heartbeat, which is also the probe of a Redis that was
// away, and the check of shards that have nothing to send.
func (c *core) sendBeat() {
	b := &beat{id: c.newID(), sent: c.local}
	for i := range c.shards {
		if s := &c.shards[i]; s.seq > 0 {
			b.shards = append(b.shards, i)
			b.acked = append(b.acked, s.acked)
		}
	}
	c.beat = b
	c.stats.beats.Add(1)
	c.emit(efBeat{id: b.id, shards: b.shards})
}

func (c *core) onBeat(ev evBeat) {
	b := c.beat
	if b == nil || b.id != ev.id {
		return
	}
	c.beat = nil
	if ev.err == nil && len(ev.beat.Seqs) != len(b.shards) {
		ev.err = errMissingReply
	}
	if ev.err != nil {
		c.beatAt = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
		c.failed(ev.err)
		return
	}
	c.beatAt = c.now + c.jitter(c.cfg.heartbeat, 0.9, 1)
	c.fails = 0
	c.sample(b.sent, ev.recv, ev.beat.Now)
	c.countNodes(int64(ev.beat.Nodes))
	for i, sh := range b.shards {
		// What was acknowledged before the beat left must be there.
		if s := &c.shards[sh]; ev.beat.Seqs[i] < b.acked[i] && !s.lost && !s.accept {
			c.noteLoss(s)
			s.accept = s.flight == nil // a flight on its way finds out by itself
		}
	}
	c.reached()
}

// countNodes takes over the number of live nodes.
func (c *core) countNodes(n int64) {
	if c.now < c.floorTo {
		n = max(n, c.floor)
	}
	if n == c.nodes || n < 1 {
		return
	}
	c.nodes, c.state.Nodes = n, int(n)
	c.link.SetNodes(n)
	c.applyMode()
	c.emit(efState{c.state})
}

// holdNodes keeps the number of nodes from falling for as long as all of them
// need to enter themselves anew: after an outage, and after Redis has lost
// their entries. Otherwise the first to come back would take itself for the
// only one, and the whole limit with it should Redis go away again.
func (c *core) holdNodes(until int64) {
	c.floor, c.floorTo = max(c.nodes, 1), until
}

// beatsToReturn is how many heartbeats (or the longest pause between probes)
// the nodes are given to come back.
const beatsToReturn = 4

// sample feeds one exchange to the estimate of Redis' clock.
func (c *core) sample(sent, recv int64, server time.Duration) {
	if c.offset.sample(sent, recv, int64(server)) {
		c.link.SetOffset(c.offset.ns)
	}
}
