package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// This file is how the core publishes notices.

// settled notes what has come of an answer whose exchange began at sent: a counter that others may
// speak of, or what they are to hear. A notice may overtake the first answer, which comes by
// another connection.
func (c *core) settled(ctr *counter.Counter, o counter.Outcome, sent int64) {
	if !c.cfg.notices || !o.First && o.Notice == nil && !o.Forget {
		return
	}
	id := ctr.ID()
	if o.Forget {
		c.link.Forget(id)
	}
	if o.First {
		c.notices.byID[idPrefix(id)] = ctr
		if n, ok := c.link.Missed(id, sent); ok && ctr.Hear(c.local, n) {
			c.enqueue(ctr, false)
		}
	}
	if n := o.Notice; n != nil {
		c.announce(redisstore.Notice{
			ID: redisstore.NoticeID(id), Shard: ctr.Shard(), Shape: n.Shape, Limit: n.Limit,
			Gen: n.Gen, Now: time.Duration(n.Now), Until: time.Duration(n.Until),
		})
	}
}

// announce has a notice published. If too many wait, those that end soonest are dropped.
func (c *core) announce(n redisstore.Notice) {
	h := &c.notices
	if !c.cfg.notices || h.channel == "" && h.asked || h.muted != nil {
		return
	}
	if n.Until == 0 {
		h.room = true
	} else if c.now < h.mayPublishAt() {
		c.stats.keptBack.Add(1)
	}
	h.announced[counter.NoticeID(n.ID)] = n
	if len(h.announced) >= maxAnnounced {
		for _, n := range h.inOrder()[maxAnnounced*3/4:] {
			delete(h.announced, counter.NoticeID(n.ID))
		}
	}
}

// delivery is what a message to all nodes takes of the budget, in ns.
func (c *core) delivery() int64 { return c.members.count * int64(time.Second) / maxDeliveries }

// spend notes a message that Redis delivers to all nodes. More than two messages of each node above
// the budget are not counted: a flood of what does not wait for it is over when it ends.
func (c *core) spend() {
	most := c.now + int64(time.Second) + 2*c.members.count*c.delivery()
	c.notices.spent = min(max(c.notices.spent, c.now)+c.delivery(), most)
}

// publish sends what was announced, in the pipeline that leaves anyway or by itself. All nodes
// hear all messages, and wait when there are too many, each for a random time, so that they do
// not go on at the same instant.
func (c *core) publish() {
	h := &c.notices
	if !h.asked || len(h.announced) == 0 || h.publishing != 0 {
		return
	}
	if h.channel == "" || h.muted != nil || !c.shards[0].healthy() {
		clear(h.announced)
		h.room = false
		return
	}
	if c.now < h.mayPublishAt() && !h.room {
		return
	}
	list := h.inOrder()
	list = list[:min(len(list), redisstore.MaxNotices)]
	for i := range list {
		delete(h.announced, counter.NoticeID(list[i].ID))
	}
	h.room = h.room && len(list) == redisstore.MaxNotices && list[len(list)-1].Until == 0 // then there may be more
	c.stats.announced.Add(uint64(len(list)))
	c.spend()
	if h.spent-c.now > int64(time.Second) {
		h.publishAt = h.spent - int64(time.Second) + c.jitter(c.members.count*c.delivery(), 0, 1)
	}
	if c.cfg.single {
		for i, e := range c.out {
			if s, ok := e.(efSend); ok {
				s.channel, s.notices, h.publishing = h.channel, list, s.id
				c.out[i] = s
				return
			}
		}
	}
	h.publishing = c.newID()
	c.emit(efPublish{id: h.publishing, timeout: c.deadline(c.shards[0].server, 0), channel: h.channel, node: c.node, notices: list})
}

// onPublished handles the end of a call that has published something. What was lost is not published again.
func (c *core) onPublished(id uint64, err error) {
	h := &c.notices
	if h.publishing != id {
		return
	}
	h.publishing = 0
	if class, _ := redisstore.Classify(err); err != nil && class == redisstore.ClassMisconfigured {
		h.muted = err // until a heartbeat says otherwise
	}
}
