package hybrid

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/table"
)

// drain sorts the counters that checks have handed over into their shards.
func (c *core) drain() {
	c.link.Drain(func(k *table.Counter, urgent bool) {
		c.activeAt = c.now
		c.enqueue(k, urgent)
	})
}

func (c *core) enqueue(k *table.Counter, urgent bool) {
	// At once, though it may report later: until its shard is known, a window goes by the
	// clock of another server.
	s := &c.shards[k.Shard(c.local, c.keys.Shard)]
	if urgent {
		s.urgent = append(s.urgent, queued{k, c.now})
		if s.urgentAt == 0 {
			s.urgentAt = c.now + c.cfg.linger
		}
		return
	}
	c.wheel.add(k, c.now+max(k.Due(), c.local)-c.local)
}

// ready queues a counter whose time to report has come.
func (c *core) ready(k *table.Counter) {
	s := &c.shards[k.Shard(c.local, c.keys.Shard)]
	if len(s.normal) >= max(s.prune, minPrune) {
		before := len(s.normal)
		s.normal = slices.DeleteFunc(s.normal, func(q queued) bool { return q.c.Dropped() })
		s.takenNormal += int64(before - len(s.normal))
		s.prune = 2 * len(s.normal)
	}
	s.normal = append(s.normal, queued{k, c.now})
	if s.normalAt == 0 {
		s.normalAt = c.now
	}
}

// refreshAll queues every live counter, to ask for it if it has nothing to tell.
func (c *core) refreshAll() {
	c.each(func(k *table.Counter) bool {
		if k.Refresh() {
			c.enqueue(k, false)
		}
		return true
	})
}

// shorten drops the first k counters, and with the last of them the memory.
func shorten(q []queued, k int) []queued {
	if k == len(q) {
		return nil
	}
	return q[k:]
}
