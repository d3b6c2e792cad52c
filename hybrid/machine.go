package hybrid

import (
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
)

var (
	errTimeout      = errors.New("hybrid: no answer within the command timeout")
	errMissingReply = errors.New("hybrid: redis answered fewer commands than it was sent")
)

// The state machine: Synced → Degraded → Resyncing → Synced. The limiter is as well as
// the worst of the servers.

// scheduleProbe plans the next probe: exponential back-off with full jitter,
// so that nodes which lost Redis together do not come back together. It waits
// no longer than the outage has lasted, so that a short one (a fail-over) is
// not followed by a long pause; and no longer than a heartbeat while some
// shards are well. What only an operator can mend is asked for slowly.
func (c *core) scheduleProbe(class redisstore.Class) {
	if c.beat != nil {
		return // one is on its way
	}
	limit := c.cfg.maxBackoff
	if class != redisstore.ClassMisconfigured {
		limit = min(limit, c.cfg.minBackoff<<min(c.backoff, 20), max(c.now-c.outageAt, c.cfg.minBackoff))
	}
	if c.count(down) < len(c.shards) {
		limit = min(limit, c.cfg.heartbeat)
	}
	c.backoff++
	c.beatAt = c.now + limit/20 + c.jitter(limit, 0, 0.95)
}

// assess derives the limiter's state from its servers'.
func (c *core) assess() {
	cut, mode := 0, Synced
	for _, v := range c.servers {
		if c.cutOff(v) {
			cut += len(v.shards)
		}
	}
	switch {
	case cut > 0:
		mode = Degraded
	case c.returning(), c.state.Mode != Synced && c.reseed != 0:
		mode = Resyncing
	}
	s := State{Mode: mode, Since: c.state.Since, Nodes: int(c.nodes), Down: cut}
	switch {
	case mode == Degraded:
		s.Reason, s.Err = c.reason, c.cause
	case mode == Resyncing && c.state.Mode == Resyncing:
		s.Reason = c.state.Reason
	case mode == Resyncing:
		s.Reason = "redis answers again"
	case mode == Synced:
		s.Reason = c.mismatch
	}
	old := c.state
	if mode == old.Mode && s.Nodes == old.Nodes && cut == old.Down && (mode == Resyncing || s.Reason == old.Reason && (mode == Synced || !c.news)) {
		return
	}
	c.news = false
	if mode != old.Mode {
		s.Since = time.Unix(0, c.local)
		c.stats.stateChanges.Add(1)
		if mode == Synced {
			c.backoff, c.outageAt = 0, 0
		}
	}
	c.state = s
	c.emit(efState{s})
}

// applyWeight tells the counters that a unit weighs another number now.
func (c *core) applyWeight() {
	c.link.SetFallback(c.cfg.fallback.weight(c.nodes))
	for i := range c.shards {
		c.applyMode(i)
	}
}

// onFlush starts to reconcile all that is waiting now.
func (c *core) onFlush(ev evFlush) {
	if c.state.Mode == Degraded && c.beat == nil {
		c.beatAt = c.now // look at once whether it is still away
	}
	if ev.all {
		c.refreshAll()
	}
	c.wheel.all(c.ready)
	f := &flush{id: ev.id, marks: map[int]*flushMark{}}
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

// refreshAll queues every live counter, to ask for it if it has nothing to tell.
func (c *core) refreshAll() {
	c.each(func(k *table.Counter) bool {
		if k.Refresh() {
			c.enqueue(k, false)
		}
		return true
	})
}

func (c *core) dropFlush(id uint64) {
	for i, f := range c.flushes {
		if f.id == id {
			c.flushes = append(c.flushes[:i], c.flushes[i+1:]...)
			return
		}
	}
}

// checkFlushes ends the requests that are fulfilled, and those that cannot be
// while Redis is away.
func (c *core) checkFlushes() {
	kept := c.flushes[:0]
	for _, f := range c.flushes {
		switch {
		case c.flushed(f):
			c.emit(efFlushed{id: f.id})
		case c.hopeless(f) && c.beat == nil && c.beatAt > c.now:
			c.emit(efFlushed{id: f.id, err: &UnavailableError{Reason: c.state.Reason, Err: c.state.Err}})
		default:
			kept = append(kept, f)
		}
	}
	clear(c.flushes[len(kept):])
	c.flushes = kept
}

// flushed reports whether all that a request asks for is told, and no shard is
// still being told what it has missed.
func (c *core) flushed(f *flush) bool {
	for i, m := range f.marks {
		s := &c.shards[i]
		if !m.boarded && s.takenNormal >= m.normal && s.takenUrgent >= m.urgent {
			m.boarded, m.flight = true, s.flight
		}
		if m.boarded && (m.flight == nil || m.flight != s.flight) && !s.isApart() {
			delete(f.marks, i)
		}
	}
	return len(f.marks) == 0 && c.state.Mode != Resyncing && c.count(down) < len(c.shards)
}

// hopeless reports whether only shards that are away keep a request waiting.
func (c *core) hopeless(f *flush) bool {
	for i := range f.marks {
		if c.shards[i].server.health != down {
			return false
		}
	}
	return c.count(down) > 0
}

// returning reports whether any server has not been heard of yet, or was away and is not
// told yet what it has missed.
func (c *core) returning() bool {
	for i := range c.shards {
		if s := &c.shards[i]; s.server.health != down && !s.well() {
			return true
		}
	}
	return false
}
