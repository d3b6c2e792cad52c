package hybrid

import (
	"slices"
)

// setHealth changes the health of a server.
func (c *core) setHealth(v *server, h health) {
	if v.health == h {
		return
	}
	if v.health = h; h == down {
		v.load.distance.unknown()
	}
	if h == down && c.downAt == 0 {
		c.downAt = c.now
		c.members.holdUntilAnswer()
	}
	if h == down && c.outageAt == 0 {
		c.outageAt = c.now
	}
	for _, i := range v.shards {
		c.applyMode(i)
	}
}

// count returns how many shards are on servers with that health.
func (c *core) count(h health) (n int) {
	for _, v := range c.servers {
		if v.health == h {
			n += len(v.shards)
		}
	}
	return n
}

// checkReturned ends the outage of shards that have nothing left to send that Redis may
// have missed, and of servers that have no other shards.
func (c *core) checkReturned() {
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
func (c *core) cutOff(v *server) bool {
	owed := func(i int) bool { return c.shards[i].missed && c.shards[i].owed() }
	return v.health == down || v.health == trying && slices.ContainsFunc(v.shards, owed)
}

// returning reports whether any server has not answered yet, or has not booked yet what it
// missed in an outage.
func (c *core) returning() bool {
	for i := range c.shards {
		if s := &c.shards[i]; s.server.health != down && !s.healthy() {
			return true
		}
	}
	return false
}
