package hybrid

import (
	"errors"
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/remote"
)

var (
	errTimeout      = errors.New("hybrid: no answer within the command timeout")
	errMissingReply = errors.New("hybrid: redis answered fewer commands than it was sent")
)

// The state machine: Synced → Degraded → Resyncing → Synced.

// failed takes note of an exchange that did not work.
func (c *core) failed(err error) {
	class, reason := remote.Classify(err)
	if errors.Is(err, errTimeout) {
		class, reason = remote.ClassUnavailable, "timeout"
	}
	c.stats.failures.Add(1)
	c.fails++
	switch {
	case c.state.Mode == Degraded:
		c.state.Reason, c.state.Err = reason, err
		c.emit(efState{c.state})
		c.scheduleProbe(class)
	case c.fails >= c.cfg.degradeAfter, c.state.Mode == Resyncing, class == remote.ClassMisconfigured:
		c.holdNodes(math.MaxInt64)
		c.enter(Degraded, reason, err)
		c.scheduleProbe(class)
	}
}

// scheduleProbe plans the next probe: exponential back-off with full jitter,
// so that nodes which lost Redis together do not come back together. What
// only an operator can mend is asked for slowly.
func (c *core) scheduleProbe(class remote.Class) {
	if c.beat != nil {
		return // one is on its way
	}
	limit := c.cfg.maxBackoff
	if class != remote.ClassMisconfigured {
		limit = min(c.cfg.maxBackoff, c.cfg.minBackoff<<min(c.backoff, 20))
	}
	c.backoff++
	c.beatAt = c.now + limit/20 + c.jitter(limit, 0, 0.95)
}

// reached takes note that Redis has answered a probe or a heartbeat.
func (c *core) reached() {
	if c.state.Mode != Degraded {
		return
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.backlog = append(s.backlog, s.normal...)
		s.normal, s.normalAt, s.retry = nil, 0, 0
	}
	c.paceAt = c.now
	c.holdNodes(c.now + max(beatsToReturn*c.cfg.heartbeat, c.cfg.maxBackoff))
	c.enter(Resyncing, "redis answers again", nil)
}

// checkResynced ends the resynchronisation once the backlog is told.
func (c *core) checkResynced() {
	if c.state.Mode != Resyncing || !c.offset.known || c.reseed != 0 {
		return
	}
	for i := range c.shards {
		if s := &c.shards[i]; s.flight != nil || len(s.backlog) > 0 {
			return
		}
	}
	c.backoff, c.fails = 0, 0
	c.enter(Synced, "", nil)
}

func (c *core) enter(m Mode, reason string, err error) {
	c.state = State{Mode: m, Reason: reason, Err: err, Since: time.Unix(0, c.local), Nodes: int(c.nodes)}
	c.stats.stateChanges.Add(1)
	c.applyMode()
	c.emit(efState{c.state})
}

// applyMode tells the counters what a unit weighs. While resyncing after an
// outage the outage's weight stays: a counter gets its normal one with its
// answer, or when all are in.
func (c *core) applyMode() {
	w := c.cfg.fallback.weight(c.nodes)
	c.link.SetFallback(w)
	switch c.state.Mode {
	case Synced:
		c.link.SetMode(1, false)
	case Degraded:
		c.link.SetMode(w, true)
	}
}

// onFlush starts to reconcile all that is waiting now.
func (c *core) onFlush(ev evFlush) {
	if c.state.Mode == Degraded && c.beat == nil {
		c.beatAt = c.now // look at once whether it is still away
	}
	if ev.all {
		c.each(func(k *local.Counter) bool {
			if k.Refresh() {
				c.enqueue(k, false)
			}
			return true
		})
	}
	f := &flush{id: ev.id, marks: map[int]*flushMark{}}
	for i := range c.shards {
		s := &c.shards[i]
		if s.flight == nil && len(s.normal)+len(s.urgent)+len(s.backlog) == 0 {
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
		case c.state.Mode == Degraded && c.beat == nil && c.beatAt > c.now:
			c.emit(efFlushed{id: f.id, err: &UnavailableError{Reason: c.state.Reason, Err: c.state.Err}})
		default:
			kept = append(kept, f)
		}
	}
	clear(c.flushes[len(kept):])
	c.flushes = kept
}

func (c *core) flushed(f *flush) bool {
	if c.state.Mode != Synced {
		return false
	}
	for i, m := range f.marks {
		s := &c.shards[i]
		if !m.boarded && s.takenNormal >= m.normal && s.takenUrgent >= m.urgent {
			m.boarded, m.seq = true, s.seq
		}
		if m.boarded && s.acked >= m.seq {
			delete(f.marks, i)
		}
	}
	return len(f.marks) == 0
}
