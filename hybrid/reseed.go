package hybrid

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// noteLoss records that Redis has lost the data of a shard, once per loss, and schedules
// that everything this node knows of the shard is sent again. now is when that was found, on Redis'
// clock: a record older than Redis keeps it is no sign of a loss. What is known is sent
// all the same, because it is not known either that nothing was lost.
func (c *core) noteLoss(s *shard, now int64) {
	if s.lost {
		return
	}
	s.lost, s.reseed = true, true
	if s.outlived = now-s.numberAt >= int64(redisstore.LedgerTTL); !s.outlived {
		c.stats.losses.Add(1)
	}
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
	if lost := c.toReseed(); lost > 0 {
		c.happened(Event{Kind: EventDataLost, Reason: fmt.Sprintf("redis has lost data, and is sent what this node knows of it: %d of %d shards", lost, len(c.shards))})
	}
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
		if s := &c.shards[i]; s.reseed && !s.outlived {
			n++
		}
	}
	return n
}
