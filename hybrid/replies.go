package hybrid

import (
	"errors"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// onReplies handles the end of a pipeline. Its batches succeed or fail each by itself.
func (c *core) onReplies(ev evReplies) {
	p := c.pipes[ev.id]
	c.onPublished(ev.id, ev.publishErr)
	if p == nil {
		return // it timed out before, and its flights are being sent again
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
			s.noteUnanswered()
		}
		all, failed = append(all, answer{shard: sh, err: err}), failed || err != nil
	}
	switch {
	case !failed:
		p.load.distance.answered(c.now, ev.took)
		p.load.budget.answered(p.cost, p.servers(ev.took, c.now), p.load.distance.ns(), ev.dialed)
		c.stats.answered(c.now-p.at, c.local)
	case timedOut(ev.outcomes):
		p.load.budget.timedOut(p.cost)
	}
	c.batchesEnded(p.at, all)
}

// servers returns how much of what a call took, which was handled at now, the server and the way
// there have taken. What this process has waited for a processor before and after the call it has
// waited about once more during the call: a busy client is no overloaded server.
func (p *pipe) servers(took, now int64) int64 { return max(took-(now-p.at-took), 0) }

// batchesEnded handles how a pipeline that was sent at began has ended for its shards. If a
// server is down because of it, a probe is scheduled.
func (c *core) batchesEnded(began int64, all []answer) {
	before := c.count(down)
	if class := c.exchangeEnded(began, all, c.booked); c.count(down) > before { // else the next probe is scheduled
		due := c.beats.next
		c.scheduleProbe(class)
		c.beats.next = min(c.beats.next, due)
	}
}

// timedOut reports whether any batch got no answer in time.
func timedOut(outcomes []redisstore.Outcome) bool {
	return slices.ContainsFunc(outcomes, func(o redisstore.Outcome) bool { return isTimeout(o.Err) })
}

// unpack removes a pipeline that has ended in any way, and returns its shards.
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

// onTimeout handles a pipeline or a heartbeat that has overrun its deadline. Whether Redis
// has booked its flights is unknown, so they are sent again. The slot of a pipeline stays
// taken until the call returns: otherwise a client that ignores deadlines would pile up
// goroutines.
func (c *core) onTimeout(id uint64) {
	if c.beats.current != nil && c.beats.current.id == id {
		c.onBeat(evBeat{id: id, err: errTimeout})
		return
	}
	p := c.pipes[id]
	c.onPublished(id, nil)
	if p == nil {
		return
	}
	p.load.budget.timedOut(p.cost)
	c.overdue[id] = p.load
	var all []answer
	for _, sh := range c.unpack(id) {
		c.shards[sh].noteUnanswered()
		all = append(all, answer{shard: sh, err: errTimeout})
	}
	c.batchesEnded(p.at, all)
}

// onReply handles the reply to one batch.
func (c *core) onReply(s *shard, r redisstore.Reply, sent, recv int64) {
	f := s.flight
	if f != nil {
		f.unanswered = 0
	}
	switch r.Fate {
	case redisstore.FateApplied, redisstore.FateDuplicate, redisstore.FateEarlier:
		s.numberAt = int64(r.Now)
		if s.asksFate || f != nil && r.Fate == redisstore.FateEarlier {
			c.fate(s, r)
			return
		}
		if f == nil || len(r.States) != len(f.items) {
			c.stats.badReplies.Add(1)
			return
		}
		c.settle(s, f, r, sent, recv)
	case redisstore.FateLost:
		c.noteLoss(s, int64(r.Now))
		c.giveUpRefunds(s)
		s.asksFate = false
		// The batch was not applied. Send it again at once, with what this node knows of the
		// keys. If Redis was told to accept that and has not, wait before the next attempt.
		s.retry = 0
		if s.accept {
			c.stats.badReplies.Add(1)
			s.retry = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
		}
		s.accept = true
	default: // another process has used the name of this node
		c.nameTaken(s)
	}
}
