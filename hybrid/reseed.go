package hybrid

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

// noteLoss records that Redis has lost the data of a shard, once per loss, and schedules
// that everything this node knows of the shard is sent again.
func (c *core) noteLoss(s *shard) {
	if s.lost {
		return
	}
	s.lost, s.reseed = true, true
	c.stats.losses.Add(1)
	c.members.hold(max(c.members.atLeastUntil, c.now+beatsToReturn*c.cfg.heartbeat))
	if c.reseedAt == 0 {
		// A loss rarely concerns one shard alone. Wait until the others have noticed theirs, and
		// ask for those that have nothing to send.
		c.reseedAt = c.now + c.cfg.linger*10
		c.beats.askAll(c.now)
	}
}

// reseedNow queues every counter that knows a state of a shard whose data was lost.
func (c *core) reseedNow() {
	c.reseedAt = 0
	c.happened(Event{Kind: EventDataLost, Reason: fmt.Sprintf("redis has lost data, and is sent what this node knows of it: %d of %d shards", c.toReseed(), len(c.shards))})
	c.each(func(k *counter.Counter) bool {
		s := &c.shards[k.Shard()]
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

// toReseed returns how many shards have lost data.
func (c *core) toReseed() (n int) {
	for i := range c.shards {
		if c.shards[i].reseed {
			n++
		}
	}
	return n
}
