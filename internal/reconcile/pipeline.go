package reconcile

import (
	"cmp"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// pump starts pipelines for the shards that are due, as long as their servers have free slots. A
// pipeline is for one server, so that a server that hangs delays no other.
func (c *Machine) pump() {
	first, n := c.nextServer, len(c.servers)
	for _, missed := range [...]bool{true, false} { // first those after an outage: the others could take all slots for ever
		for k := range n {
			v := c.servers[(first+k)%n]
			for v.load.free(missed) {
				ids := c.pick(v, missed)
				if len(ids) == 0 {
					break
				}
				c.send(v, ids)
				c.nextServer = (first + k + 1) % n
			}
		}
	}
}

// pick makes the flights of the shards of v that are due, and returns as many shards as one
// pipeline may carry: of those that have missed something in an outage, or of the others.
func (c *Machine) pick(v *server, missed bool) (ids []int) {
	n, width, left := len(v.shards), cmp.Or(c.cfg.ShardsPerPipeline, defaultWidth), v.load.budget.ns
	if missed {
		width = min(width, resyncWidth)
	}
	for range n {
		i := v.shards[v.nextShard%n]
		s := &c.shards[i]
		if at := s.due(); at != 0 && c.now >= at && s.pipe == 0 && s.missed == missed {
			if s.flight == nil {
				c.fillFlight(s, left, c.mostKeys(v))
			}
			if s.flight != nil {
				ids = append(ids, i)
				left -= s.flight.cost
			}
		}
		v.nextShard = (v.nextShard + 1) % n
		if len(ids) == width || left <= 0 {
			break
		}
	}
	return ids
}

// urgentShare bounds a flight with urgent keys: it is filled with other keys up to
// 1/urgentShare of the most keys at most, so that urgent reports do not wait for Redis to
// apply a flood of new keys.
const urgentShare = 4

// fillFlight makes the next flight of s from its queues. left is what the flight may cost, most how many keys
// it may have. It makes no flight if no counter in the queues has anything to report.
func (c *Machine) fillFlight(s *shard, left int64, most int) {
	f := flight{oldest: c.now}
	c.takeFromQueues(s, &f, left, most)
	if s.urgent.len() == 0 {
		s.urgentAt = 0
	}
	if len(s.normal) == 0 {
		s.normalAt = 0
	}
	if len(f.items) == 0 {
		return
	}
	s.filledAt = c.now
	s.seq++
	f.nonce = c.ids.Nonce()
	s.flight = &f
	s.retry = 0
	c.stats.Behind.Store(c.now - f.oldest)
}

// takeFromQueues fills f from the queues of s that are due.
func (c *Machine) takeFromQueues(s *shard, f *flight, left int64, most int) {
	room := func() bool { return len(f.items) < most && f.cost < left }
	collect := func(q queued, from counter.Queue) {
		f.oldest = min(f.oldest, q.at) // also if it is in f already, by a later place in another queue
		if q.c.Collect(c.local, from) {
			f.items = append(f.items, item{c: q.c})
			f.cost += cost(q.c.Rule())
		}
	}
	take := func(queue *[]queued) {
		k := 0
		for ; k < len(*queue) && room(); k++ {
			collect((*queue)[k], counter.Normal)
			s.urgent.remove((*queue)[k].c)
		}
		if *queue = (*queue)[k:]; len(*queue) == 0 {
			*queue = nil // frees its memory
		}
	}
	take(&s.backlog)
	if s.missed {
		return
	}
	due := s.urgentAt != 0 && c.now >= s.urgentAt
	if due || s.normalAt != 0 && c.now >= s.normalAt { // urgent reports that wait for others join any flight
		for s.urgent.len() > 0 && room() {
			collect(s.urgent.pop(), counter.Urgent)
		}
		if due && len(f.items) > 0 {
			most /= urgentShare
		}
	}
	if s.normalAt != 0 && c.now >= s.normalAt {
		take(&s.normal)
	}
}

// send starts one pipeline to a server, with the flights of some of its shards.
func (c *Machine) send(v *server, ids []int) {
	p := &pipe{load: v.load, shards: ids, sent: c.local, at: c.now}
	id := c.newID()
	if c.shards[ids[0]].missed { // then all have missed something
		v.load.paced = id
	}
	batches, late := make([]*redisstore.Batch, len(ids)), 0
	for i, sh := range ids {
		f := c.shards[sh].flight
		c.shards[sh].pipe, batches[i] = id, c.batch(sh)
		p.cost, late = p.cost+f.cost, max(late, f.late-1) // after the first: its answer was probably just lost
	}
	p.most = c.deadline(v, late)
	c.pipes[id] = p
	v.load.slots--
	c.emit(Send{ID: id, Timeout: p.most, Batches: batches})
}

// onReplies handles the end of a pipeline. Each of its batches succeeds or fails by itself. The slot of a
// pipeline that has timed out stays taken until its call returns: otherwise a client that ignores deadlines
// would pile up goroutines.
func (c *Machine) onReplies(ev Replies) {
	p := c.pipes[ev.ID]
	c.onPublished(ev.ID, ev.PublishErr)
	if p == nil {
		return // it timed out before, and its flights are being sent again
	}
	delete(c.pipes, ev.ID)
	if c.overdue[ev.ID] == nil {
		p.load.slots++
	}
	if p.load.paced == ev.ID {
		p.load.paced = 0
		p.load.paceAt = c.now + resyncPauseMin + c.jitter(resyncRange, 0, 1)
	}
	all, failed := make([]answer, 0, len(p.shards)), false
	for i, sh := range p.shards {
		s := &c.shards[sh]
		s.pipe = 0
		err := errMissingReply
		if i < len(ev.Outcomes) {
			err = ev.Outcomes[i].Err
		}
		switch {
		case err == nil:
			c.sampleShard(sh, p.sent, ev.Recv, int64(ev.Outcomes[i].Reply.Now))
			c.onReply(s, ev.Outcomes[i].Reply, p.sent, ev.Recv)
		case redisstore.MayHaveRun(err):
			s.noteUnanswered()
		}
		a := answer{shard: sh, err: err}
		if s.flight != nil && isTimeout(err) { // it is sent again with a longer deadline
			s.flight.late++
			a.spent = p.most >= c.mostPatience()
			a.waits = !a.spent
		}
		all, failed = append(all, a), failed || err != nil
	}
	switch {
	case !failed:
		p.load.distance.answered(c.now, ev.Took)
		p.load.budget.answered(p.cost, p.servers(ev.Took, c.now), p.load.distance.ns(), ev.Dialed)
		c.stats.Answered(c.now-p.at, c.local)
	case slices.ContainsFunc(ev.Outcomes, func(o redisstore.Outcome) bool { return isTimeout(o.Err) }):
		p.load.budget.timedOut(p.cost)
	}
	before := c.count(down)
	if class := c.exchangeEnded(p.at, all, c.booked); c.count(down) > before { // else the next probe is scheduled
		due := c.beats.next
		c.scheduleProbe(class)
		c.beats.next = min(c.beats.next, due)
	}
}

// servers returns how much of took, the duration of a call, the server and the network have taken. now is
// when the answer was handled. Between the sending and now, outside of the call, this process has waited
// for a processor. It has waited about as long during the call, and that is subtracted: a busy client
// must not look like an overloaded server.
func (p *pipe) servers(took, now int64) int64 { return max(took-(now-p.at-took), 0) }

// onTimeout handles a pipeline or a heartbeat that has overrun its deadline.
func (c *Machine) onTimeout(id uint64) {
	if c.beats.current != nil && c.beats.current.id == id {
		c.onBeat(BeatAnswer{ID: id, Err: errTimeout})
		return
	}
	ev := Replies{ID: id}
	if p := c.pipes[id]; p != nil {
		c.overdue[id] = p.load
		ev.Outcomes = slices.Repeat([]redisstore.Outcome{{Err: errTimeout}}, len(p.shards))
	}
	c.onReplies(ev)
}

// onReply handles the reply to one batch.
func (c *Machine) onReply(s *shard, r redisstore.Reply, sent, recv int64) {
	f := s.flight
	switch r.Verdict {
	case redisstore.VerdictApplied, redisstore.VerdictDuplicate:
		s.numberAt = int64(r.Now)
		if f == nil || len(r.States) != len(f.items) {
			c.stats.BadReplies.Add(1)
			return
		}
		c.settle(s, f, r, sent, recv)
	case redisstore.VerdictLost:
		c.noteLoss(s, int64(r.Now))
		c.giveUpRefunds(s)
		// The batch was not applied. Send it again at once, with what this node knows of the
		// keys. If the batch asked Redis to accept it already, wait before the next attempt.
		s.retry = 0
		if s.accept {
			c.stats.BadReplies.Add(1)
			s.retry = c.now + c.jitter(retryPause, 0.5, 1.5)
			return
		}
		s.acceptNext(c.ids.Nonce())
	default: // another process has used the name of this node
		c.nameTaken(s)
	}
}
