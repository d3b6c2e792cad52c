package hybrid

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/remote"
)

var (
	errTimeout      = errors.New("hybrid: no answer within the command timeout")
	errMissingReply = errors.New("hybrid: redis answered fewer commands than it was sent")
)

// The state machine: Synced → Degraded → Resyncing → Synced, once per shard,
// because the shards of a cluster fail one by one; and once for the limiter,
// which is as well as the worst of its shards.

// round counts exchanges that failed, those that were under way at the same time as
// one: a server that stalls once fails all of them.
type round struct {
	fails int
	at    int64 // pace, when the latest was counted
}

// failed counts an exchange that began at a time and has failed now.
func (r *round) failed(began, now int64) {
	if began >= r.at || r.fails == 0 {
		r.fails, r.at = r.fails+1, now
	}
}

// failed takes note of an exchange that began at a time, and did not work for some
// shards. total says that none can have worked.
func (c *core) failed(began int64, shards []int, err error, total bool) {
	class, reason := remote.Classify(err)
	if errors.Is(err, errTimeout) {
		class, reason = remote.ClassUnavailable, "timeout"
	}
	c.stats.failures.Add(1)
	c.reason, c.cause, c.news = reason, err, true
	hopeless := class == remote.ClassMisconfigured
	for _, sh := range shards {
		s := &c.shards[sh]
		s.apart = !total
		s.rounds.failed(began, c.now)
		s.retry = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
		if s.rounds.fails >= c.cfg.degradeAfter || s.health == returning || hopeless {
			c.setHealth(sh, down)
		}
	}
	if total {
		c.rounds.failed(began, c.now)
	}
	if total && (c.rounds.fails >= c.cfg.degradeAfter || c.count(healthy) == 0) {
		for i := range c.shards {
			c.setHealth(i, down)
		}
	}
	if c.count(down) > 0 {
		c.scheduleProbe(class)
	}
}

// answered takes note that a shard's server has answered a batch.
func (c *core) answered(s *shard) {
	s.rounds.fails, s.suspect, s.trial, c.rounds.fails = 0, false, false, 0
}

func (c *core) count(h health) (n int) {
	for i := range c.shards {
		if c.shards[i].health == h {
			n++
		}
	}
	return n
}

func (c *core) setHealth(sh int, h health) {
	s := &c.shards[sh]
	if s.health == h {
		return
	}
	s.health = h
	if h == down && c.downAt == 0 {
		c.downAt = c.now
		c.holdNodes(math.MaxInt64)
	}
	if h == down && c.outageAt == 0 {
		c.outageAt = c.now
	}
	c.applyMode(sh)
}

// scheduleProbe plans the next probe: exponential back-off with full jitter,
// so that nodes which lost Redis together do not come back together. It waits
// no longer than the outage has lasted, so that a short one (a fail-over) is
// not followed by a long pause; and no longer than a heartbeat while some
// shards are well. What only an operator can mend is asked for slowly.
func (c *core) scheduleProbe(class remote.Class) {
	if c.beat != nil {
		return // one is on its way
	}
	limit := c.cfg.maxBackoff
	if class != remote.ClassMisconfigured {
		limit = min(limit, c.cfg.minBackoff<<min(c.backoff, 20), max(c.now-c.outageAt, c.cfg.minBackoff))
	}
	if c.count(down) < len(c.shards) {
		limit = min(limit, c.cfg.heartbeat)
	}
	c.backoff++
	c.beatAt = c.now + limit/20 + c.jitter(limit, 0, 0.95)
}

// reached takes note of a probe or a heartbeat that was answered, though not
// by the servers of the failing shards. It speaks for shards that it did not
// ask too, unless they have failed while others did not.
func (c *core) reached(b *beat, failing []int) {
	c.rounds.fails = 0
	if c.count(down) > 0 {
		c.wheel.all(c.ready)
	}
	for _, sh := range b.shards {
		// A batch that is under way, and has failed before, speaks for itself.
		if s := &c.shards[sh]; s.flight == nil && !slices.Contains(failing, sh) {
			s.rounds.fails, s.suspect = 0, false
		}
	}
	for i := range c.shards {
		s := &c.shards[i]
		if s.health != down || slices.Contains(failing, i) || s.apart && !slices.Contains(b.shards, i) {
			continue
		}
		s.backlog = append(s.backlog, s.normal...)
		s.normal, s.normalAt, s.retry, s.rounds.fails = nil, 0, 0, 0
		s.trial, s.apart = true, false
		c.paceAt = min(c.paceAt, c.now)
		c.budget.anew()
		c.setHealth(i, returning)
	}
	if c.floorTo == math.MaxInt64 && c.count(down) == 0 { // an outage is over, or Redis has answered for the first time
		c.downAt = 0
		c.holdNodes(c.now + max(beatsToReturn*c.cfg.heartbeat, c.cfg.maxBackoff))
	}
}

// checkReturned ends the resynchronisation of the shards that have been told
// their backlog.
func (c *core) checkReturned() {
	for i := range c.shards {
		s := &c.shards[i]
		if s.health == returning && s.offset.known && !s.unsettled() && len(s.backlog) == 0 {
			c.setHealth(i, healthy)
		}
	}
}

// cutOff reports whether a shard is away, or has only answered a probe since it
// was, and is now sending the first batch: a server that takes the one may
// still refuse the other, and nobody wants to be told of each attempt.
func (s *shard) cutOff() bool {
	return s.health == down || s.health == returning && s.trial && (s.unsettled() || len(s.backlog) > 0)
}

// assess derives the limiter's state from its shards'.
func (c *core) assess() {
	cut, mode := 0, Synced
	for i := range c.shards {
		if c.shards[i].cutOff() {
			cut++
		}
	}
	switch {
	case cut > 0:
		mode = Degraded
	case c.count(returning) > 0, c.state.Mode != Synced && c.reseed != 0:
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
			c.backoff, c.rounds.fails, c.outageAt = 0, 0, 0
		}
	}
	c.state = s
	c.emit(efState{s})
}

// applyMode tells the counters of a shard what a unit weighs. While a shard
// returns from an outage the outage's weight stays: a counter gets its normal
// one with its answer, or when all are in. So it is for expected nodes (see
// expectNodes) until the shard's server has answered.
func (c *core) applyMode(sh int) {
	w := c.cfg.fallback.weight(c.nodes)
	s := &c.shards[sh]
	s.weighs = s.health == down || s.health == returning && s.weighs
	if s.weighs {
		c.link.Part(sh).SetMode(w, c.outageAt != 0) // at the start it need not be one
	} else {
		c.link.Part(sh).SetMode(1, false)
	}
	// A key of which it is not known yet where it belongs.
	switch {
	case c.count(healthy) > 0:
		c.link.Part(-1).SetMode(1, false)
	case c.count(down) == len(c.shards):
		c.link.Part(-1).SetMode(w, true)
	}
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
	c.each(func(k *local.Counter) bool {
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
		if c.shards[i].health != down {
			return false
		}
	}
	return c.count(down) > 0
}
