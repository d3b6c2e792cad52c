package reconcile

import (
	"math"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// setHealth changes the health of a server.
func (c *Machine) setHealth(v *server, h health) {
	if v.health == h {
		return
	}
	if h == down {
		v.load.distance.unknown()
		if c.count(down) == 0 { // else it is held already
			c.members.holdUntilAnswer()
		}
		if c.outageAt == 0 {
			c.outageAt = c.now
		}
	}
	v.health = h
	for _, i := range v.shards {
		c.applyMode(i)
	}
}

// count returns how many shards are on servers with that health.
func (c *Machine) count(h health) (n int) {
	for _, v := range c.servers {
		if v.health == h {
			n += len(v.shards)
		}
	}
	return n
}

// checkReturned ends the outage of shards that have nothing left to send that Redis may have missed, and of
// servers that have no other shards.
func (c *Machine) checkReturned() {
	for i := range c.shards {
		if s := &c.shards[i]; s.missed && s.server.health != down && !s.owed() {
			s.missed = false
			c.applyMode(i)
		}
	}
	for _, v := range c.servers {
		missed := func(i int) bool { return c.shards[i].missed }
		if (v.health == starting || v.health == trying) && v.offset.known && !slices.ContainsFunc(v.shards, missed) {
			c.setHealth(v, up)
		}
	}
}

// cutOff reports whether the shards of a server count as cut off: the server is down, or it
// has answered a probe and not yet a batch. It may answer probes and still refuse batches,
// and the state must not change with every attempt.
func (c *Machine) cutOff(v *server) bool {
	owed := func(i int) bool { return c.shards[i].owed() }
	return v.health == down || v.health == trying && slices.ContainsFunc(v.shards, owed)
}

// scheduleProbe schedules the next probe of servers that are down, with exponential back-off and full jitter, so
// that nodes which lost Redis together do not return together. The pause is no longer than the outage has lasted:
// so a short outage (a failover) is not followed by a long pause. While any server is not down, it is no longer
// than a heartbeat. A failure that only an operator can end (a password, a permission) is probed at MaxBackoff
// from the first probe on.
func (c *Machine) scheduleProbe(class redisstore.Class) {
	if c.beats.current != nil {
		return // one is under way
	}
	limit := c.cfg.MaxBackoff
	if class != redisstore.ClassMisconfigured {
		limit = min(limit, c.cfg.MinBackoff<<min(c.beats.probesFailed, 20), max(c.now-c.outageAt, c.cfg.MinBackoff))
	}
	if c.count(down) < len(c.shards) {
		limit = min(limit, c.cfg.HeartbeatInterval)
	}
	c.beats.probesFailed++
	c.beats.next = c.now + limit/20 + c.jitter(limit, 0, 0.95)
}

// assess derives the state of the limiter from its servers, and reports it if it has changed. The mode goes
// Synced → Degraded → Resyncing → Synced. It is that of the worst server.
func (c *Machine) assess() {
	cut, mode := 0, Synced
	returning := false // a server has not answered yet, or has not applied yet what it missed in an outage
	for _, v := range c.servers {
		if c.cutOff(v) {
			cut += len(v.shards)
		}
	}
	for i := range c.shards {
		s := &c.shards[i]
		returning = returning || s.server.health != down && !s.healthy()
	}
	switch {
	case cut > 0:
		mode = Degraded
	case returning, c.state.Mode != Synced && c.reseedAt != 0:
		mode = Resyncing
	}
	old := c.state
	s := State{Mode: mode, Since: old.Since, Reason: c.mismatch, Nodes: int(c.members.count), Down: cut, NoticesDown: c.noticesDown}
	switch {
	case mode == Degraded:
		s.Reason, s.Err = c.lastReason, c.lastErr
	case mode == Resyncing && old.Mode == Resyncing:
		s.Reason = old.Reason
	case mode == Resyncing:
		s.Reason = "redis answers again"
	}
	if mode == old.Mode && s.Nodes == old.Nodes && cut == old.Down && s.NoticesDown == old.NoticesDown && (mode == Resyncing || s.Reason == old.Reason && (mode == Synced || !c.reasonChanged)) {
		return
	}
	c.reasonChanged = false
	if mode != old.Mode {
		s.Since = c.local
		c.stats.StateChanges.Add(1)
		if mode == Synced {
			c.beats.probesFailed, c.outageAt = 0, 0
		}
	}
	c.state = s
	c.emit(NewState{s})
}

// members keeps the number of live nodes, this one included.
//
// A higher number applies at once. A lower one applies after a heartbeat and a half, and is then the
// highest that was reported in that time: when Redis has lost the list of nodes, every live node enters
// itself again within one heartbeat, and not all nodes notice the loss at once.
//
// All times are on the timer clock, in ns.
type members struct {
	count int64

	atLeast      int64 // the number does not fall below this, because nodes may be about to return,
	atLeastUntil int64 // before this time; math.MaxInt64: until Redis answers

	shrinkSince int64 // when a lower number was first reported; 0: none is pending
	shrinkTo    int64 // the highest number reported since
}

// beatsToReturn is how many heartbeats (or the longest pause between probes, if that is
// longer) the nodes are given to enter themselves again.
const beatsToReturn = 4

// hold keeps the number from falling before a time: after an outage, after Redis has lost the list of
// nodes, and at the start of a fleet of known size. Otherwise the first node to return would count itself
// as the only one, and would admit the whole limit if Redis became unreachable again.
func (m *members) hold(until int64) {
	m.atLeast, m.atLeastUntil = max(m.count, 1), until
}

// holdUntilAnswer is hold until Redis answers, see waitsForAnswer.
func (m *members) holdUntilAnswer() { m.hold(math.MaxInt64) }

// waitsForAnswer reports whether the number is held until Redis answers: since a server went down, until
// all servers have answered, and at the start if the size of the fleet is known.
func (m *members) waitsForAnswer() bool { return m.atLeastUntil == math.MaxInt64 }

// held reports whether the number may not fall yet.
func (m *members) held(now int64) bool { return now < m.atLeastUntil }

// reported applies the number of live nodes that Redis has reported. It returns whether the
// count has changed.
func (m *members) reported(n, now, heartbeat int64) (changed bool) {
	if m.held(now) {
		n = max(n, m.atLeast)
	}
	switch {
	case n < 1:
		return false
	case n >= m.count:
		m.shrinkSince = 0
	case m.shrinkSince == 0:
		m.shrinkTo, m.shrinkSince = n, now
		return false
	case now-m.shrinkSince < heartbeat*3/2:
		m.shrinkTo = max(m.shrinkTo, n)
		return false
	default:
		n, m.shrinkSince = max(m.shrinkTo, n), 0
	}
	changed, m.count = n != m.count, n
	return changed
}

// applyMode gives the counters of a shard the cost multiplier of a unit: that of the fallback policy during
// an outage, else 1. While a shard returns from an outage its counters keep the multiplier of the outage;
// each gets 1 with its own answer, or when the shard has been sent all that it missed. It is the same at
// the start with ExpectedNodes, until the shard's server has answered.
func (c *Machine) applyMode(shard int) {
	w := c.cfg.Fallback.Multiplier(c.members.count)
	s := &c.shards[shard]
	s.multiplied = s.server.health == down || !s.healthy() && s.multiplied
	if s.multiplied {
		c.link.Part(shard).SetMode(w, c.outageAt != 0) // at the start there may be no outage
	} else {
		c.link.Part(shard).SetMode(1, false)
	}
	if !s.healthy() {
		s.healthyAt = 0
	} else if s.healthyAt == 0 {
		s.healthyAt = max(c.local, 1)
	}
	c.hearShard(shard)
}

// applyWithoutShard sets the cost multiplier of keys that have no counter of their own, and so no shard:
// 1 if any shard is healthy, that of the fallback policy if all servers are down. Otherwise it stays.
func (c *Machine) applyWithoutShard() {
	gone := true
	for i := range c.shards {
		if c.shards[i].healthy() {
			c.link.Part(-1).SetMode(1, false)
			return
		}
		gone = gone && c.shards[i].server.health == down
	}
	if gone {
		c.link.Part(-1).SetMode(c.cfg.Fallback.Multiplier(c.members.count), true)
	}
}

// expectNodes makes a new machine count n nodes until Redis has reported them. With FairShare it makes
// each unit cost n from the first check on. That Redis is unreachable is known only after an exchange
// has failed. Until then each process of a fleet that starts would admit the whole limit. The counters
// are not marked as degraded, so that reports are as urgent as usual and one answer of Redis ends this.
func (c *Machine) expectNodes(n int64) {
	c.members.count, c.state.Nodes = n, int(n)
	c.members.holdUntilAnswer()
	if c.cfg.Fallback != FairShare {
		return
	}
	for i := range c.shards {
		c.shards[i].multiplied = true
	}
	c.link.SetMode(c.cfg.Fallback.Multiplier(n), false)
}

// countNodes applies the number of live nodes that a heartbeat has reported, and gives all counters the
// cost multiplier that follows from it.
func (c *Machine) countNodes(n int64) {
	changed := c.members.reported(n, c.now, c.cfg.HeartbeatInterval)
	c.assumeNodes()
	if !changed {
		return
	}
	c.link.SetFallback(c.cfg.Fallback.Multiplier(c.members.count))
	for i := range c.shards {
		c.applyMode(i)
	}
}
