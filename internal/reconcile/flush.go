package reconcile

import "slices"

// flush is a request to reconcile everything that is waiting now.
type flush struct {
	id    uint64
	marks map[int]*flushMark // by shard: those that are not done
}

// flushMark is how far the queues of a shard must be emptied for a flush.
type flushMark struct {
	normal, urgent int64   // what takenNormal and takenUrgent of the shard are when the last counter was taken
	reached        bool    // both numbers have been reached
	flight         *flight // the flight that carried the last counter; nil: it had nothing to report
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
	f := &flush{id: ev.ID, marks: map[int]*flushMark{}}
	for i := range c.shards {
		s := &c.shards[i]
		if !s.waits() {
			continue
		}
		f.marks[i] = &flushMark{
			normal: s.takenNormal + int64(len(s.normal)+len(s.backlog)),
			urgent: s.takenUrgent + int64(len(s.urgent)),
		}
		s.retry = 0
		if len(s.normal) > 0 {
			s.normalAt = c.now
		}
		if len(s.urgent) > 0 {
			s.urgentAt = c.now
		}
	}
	c.flushes = append(c.flushes, f)
}

// dropFlush removes a flush that no caller waits for any more.
func (c *Machine) dropFlush(id uint64) {
	c.flushes = slices.DeleteFunc(c.flushes, func(f *flush) bool { return f.id == id })
}

// checkFlushes ends the flushes that are done, and with an error those that wait only for
// servers that are down.
func (c *Machine) checkFlushes() {
	kept := c.flushes[:0]
	for _, f := range c.flushes {
		switch {
		case c.flushed(f):
			c.emit(Flushed{ID: f.id})
		case c.hopeless(f) && c.beats.current == nil && c.beats.next > c.now:
			c.emit(Flushed{ID: f.id, Err: &Unavailable{Reason: c.state.Reason, Err: c.state.Err}})
		default:
			kept = append(kept, f)
		}
	}
	clear(c.flushes[len(kept):])
	c.flushes = kept
}

// flushed reports whether Redis has applied everything that a flush asked for, and no shard is
// returning from an outage.
func (c *Machine) flushed(f *flush) bool {
	for i, m := range f.marks {
		s := &c.shards[i]
		if !m.reached && s.takenNormal >= m.normal && s.takenUrgent >= m.urgent {
			m.reached, m.flight = true, s.flight
		}
		if m.reached && (m.flight == nil || m.flight != s.flight) {
			delete(f.marks, i)
		}
	}
	return len(f.marks) == 0 && c.state.Mode != Resyncing && c.count(down) < len(c.shards)
}

// hopeless reports whether a flush waits only for servers that are down.
func (c *Machine) hopeless(f *flush) bool {
	for i := range f.marks {
		if c.shards[i].server.health != down {
			return false
		}
	}
	return c.count(down) > 0
}
