package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// The mode of the limiter goes Synced → Degraded → Resyncing → Synced. It is that of the
// worst server.

// scheduleProbe schedules the next probe of servers that are down, with exponential
// back-off and full jitter, so that nodes which lost Redis together do not return together.
// The pause is no longer than:
//
//   - the outage has lasted, so that a short outage (a failover) is not followed by a long
//     pause;
//   - a heartbeat, while any server is not down.
//
// A failure that only an operator can end (a password, a permission) is probed at
// MaxBackoff from the first probe on.
func (c *core) scheduleProbe(class redisstore.Class) {
	if c.beats.current != nil {
		return // one is under way
	}
	limit := c.cfg.maxBackoff
	if class != redisstore.ClassMisconfigured {
		limit = min(limit, c.cfg.minBackoff<<min(c.beats.probesFailed, 20), max(c.now-c.outageAt, c.cfg.minBackoff))
	}
	if c.count(down) < len(c.shards) {
		limit = min(limit, c.cfg.heartbeat)
	}
	c.beats.probesFailed++
	c.beats.next = c.now + limit/20 + c.jitter(limit, 0, 0.95)
}

// assess derives the state of the limiter from its servers, and reports it if it has
// changed.
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
	case c.returning(), c.state.Mode != Synced && c.reseedAt != 0:
		mode = Resyncing
	}
	s := State{Mode: mode, Since: c.state.Since, Nodes: int(c.members.count), Down: cut, Deaf: c.deaf}
	switch {
	case mode == Degraded:
		s.Reason, s.Err = c.lastReason, c.lastErr
	case mode == Resyncing && c.state.Mode == Resyncing:
		s.Reason = c.state.Reason
	case mode == Resyncing:
		s.Reason = "redis answers again"
	case mode == Synced:
		s.Reason = c.mismatch
	}
	old := c.state
	if mode == old.Mode && s.Nodes == old.Nodes && cut == old.Down && s.Deaf == old.Deaf && (mode == Resyncing || s.Reason == old.Reason && (mode == Synced || !c.reasonChanged)) {
		return
	}
	c.reasonChanged = false
	if mode != old.Mode {
		s.Since = time.Unix(0, c.local)
		c.stats.stateChanges.Add(1)
		if mode == Synced {
			c.beats.probesFailed, c.outageAt = 0, 0
		}
	}
	c.state = s
	c.emit(efState{s})
}
