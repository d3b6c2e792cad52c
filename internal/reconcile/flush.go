package reconcile

import "slices"

// flush is a request to reconcile everything that is waiting at a time.
type flush struct {
	id uint64
	at int64 // on the timer clock
}

// onFlush starts a flush: everything that is waiting is due now.
func (c *Machine) onFlush(ev Flush) {
	if c.state.Mode == Degraded && c.beats.current == nil {
		c.beats.next = c.now // probe at once
	}
	if ev.All {
		c.refreshAll()
	}
	c.wheel.all(c.ready)
	for i := range c.shards {
		s := &c.shards[i]
		s.retry, s.normalAt, s.urgentAt = 0, min(s.normalAt, c.now), min(s.urgentAt, c.now)
	}
	c.flushes = append(c.flushes, flush{id: ev.ID, at: c.now})
}

// checkFlushes ends the flushes that are done: Redis has applied everything that was waiting, and no shard
// is returning from an outage. It ends with an error those that wait only for servers that are down.
func (c *Machine) checkFlushes() {
	cut := c.count(down)
	c.flushes = slices.DeleteFunc(c.flushes, func(f flush) bool {
		waiting, reachable := false, false
		for i := range c.shards {
			if s := &c.shards[i]; s.oldest() <= f.at {
				waiting, reachable = true, reachable || s.server.health != down
			}
		}
		switch {
		case !waiting && c.state.Mode != Resyncing && cut < len(c.shards):
			c.emit(Flushed{ID: f.id, Booked: true})
		case !reachable && cut > 0 && c.beats.current == nil && c.beats.next > c.now:
			c.emit(Flushed{ID: f.id, Reason: c.state.Reason, Err: c.state.Err})
		default:
			return false
		}
		return true
	})
}
