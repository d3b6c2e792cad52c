package hybrid

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

// drain queues the counters that checks have handed over.
func (c *core) drain() {
	c.link.Drain(func(k *counter.Counter, urgent bool) {
		c.activeAt = c.now
		c.enqueue(k, urgent)
	})
}

// enqueue queues a counter: an urgent one in its shard, another in the wheel until it is due.
func (c *core) enqueue(k *counter.Counter, urgent bool) {
	if urgent {
		s := &c.shards[k.Shard()]
		u := k.List()
		if !u.Listed {
			s.urgent = append(s.urgent, queued{k, c.now})
		}
		if u.Overtakes {
			s.pressing = append(s.pressing, queued{k, c.now})
		}
		at := max(c.now, s.boardedAt+c.cfg.linger, c.now+u.Until-c.local)
		if s.urgentAt == 0 || at < s.urgentAt {
			s.urgentAt = at
		}
		return
	}
	// A key that refuses may be due long after a lag. Units that it admits before are not. If it has
	// none by then it leaves the queue until it is asked again, see look.
	c.wheel.add(k, c.now+min(max(k.Due(), c.local)-c.local, max(k.Lag(), c.wheel.tick)))
}

// look looks at a counter that the wheel has held for a lag at most. One that refuses because of a
// notice, and is not due, goes back: it must be asked for even if nobody checks it again.
func (c *core) look(k *counter.Counter) {
	if k.HasNotice() && k.Due() > c.local+c.wheel.tick {
		c.enqueue(k, false)
		return
	}
	c.ready(k)
}

// ready moves a counter that is due from the wheel into the queue of its shard.
func (c *core) ready(k *counter.Counter) {
	s := &c.shards[k.Shard()]
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

// refreshAll queues every live counter, including those that have nothing to report.
func (c *core) refreshAll() {
	c.each(func(k *counter.Counter) bool {
		if k.Refresh() {
			c.enqueue(k, false)
		}
		return true
	})
}

// shorten drops the first k counters. An empty queue frees its memory.
func shorten(q []queued, k int) []queued {
	if k == len(q) {
		return nil
	}
	return q[k:]
}
