package hybrid

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/table"
)

// noteLoss records that Redis has lost the data of a shard, once per loss,
// and arranges for everything known of it to be told anew.
func (c *core) noteLoss(s *shard) {
	if s.lost {
		return
	}
	s.lost, s.reseed = true, true
	c.stats.losses.Add(1)
	c.members.hold(max(c.members.atLeastUntil, c.now+beatsToReturn*c.cfg.heartbeat))
	if c.reseed == 0 {
		// A loss rarely comes alone: let the other shards report theirs, and
		// look at those that have nothing to send.
		c.reseed = c.now + c.cfg.linger*10
		c.beats.askAll(c.now)
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
