package hybrid

import (
	"errors"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
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
			s.noteUnanswered()
		}
		all, failed = append(all, answer{shard: sh, err: err}), failed || err != nil
	}
	switch {
	case !failed:
		p.load.budget.answered(p.cost, c.now-p.at)
	case timedOut(ev.outcomes):
		p.load.budget.timedOut(p.cost)
	}
	c.batchesEnded(p.at, all)
}

// batchesEnded takes note of what has become of a pipeline that began at a time.
func (c *core) batchesEnded(began int64, all []answer) {
	before := c.count(down)
	if class := c.exchangeEnded(began, all, c.booked); c.count(down) > before { // else the next probe is planned
		due := c.beats.next
		c.scheduleProbe(class)
		c.beats.next = min(c.beats.next, due)
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

// onTimeout handles an exchange that has overrun its deadline: its fate is
// unknown, so what it carried is to be sent again. Its slot stays taken until
// the call returns, so that a client that ignores deadlines cannot pile up
// goroutines.
func (c *core) onTimeout(id uint64) {
	if c.beats.current != nil && c.beats.current.id == id {
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
		c.shards[sh].noteUnanswered()
		all = append(all, answer{shard: sh, err: errTimeout})
	}
	c.batchesEnded(p.at, all)
}

// onReply handles what Redis says of one batch.
func (c *core) onReply(s *shard, r redisstore.Reply, sent, recv int64) {
	f := s.flight
	if f != nil {
		f.unanswered = 0
	}
	switch r.Fate {
	case redisstore.FateApplied, redisstore.FateDuplicate, redisstore.FateEarlier:
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
		c.noteLoss(s)
		c.giveUpRefunds(s)
		s.asksFate = false
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
