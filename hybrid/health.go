package hybrid

import (
	"slices"
)

func (c *core) setHealth(v *server, h health) {
	if v.health == h {
		return
	}
	v.health = h
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

// count returns how many shards are on servers of a health.
func (c *core) count(h health) (n int) {
	for _, v := range c.servers {
		if v.health == h {
			n += len(v.shards)
		}
	}
	return n
}

// checkReturned ends the return of the shards that have been told all that they have
// missed, and of servers that have missed nothing.
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

// cutOff reports whether a server is away, or has only answered a probe since it was, and
// is sent the first batch: one that takes the one may still refuse the other, and
// nobody wants to be told of each attempt.
func (c *core) cutOff(v *server) bool {
	owed := func(i int) bool { return c.shards[i].missed && c.shards[i].owed() }
	return v.health == down || v.health == trying && slices.ContainsFunc(v.shards, owed)
}

// returning reports whether any server has not been heard of yet, or was away and is not
// told yet what it has missed.
func (c *core) returning() bool {
	for i := range c.shards {
		if s := &c.shards[i]; s.server.health != down && !s.healthy() {
			return true
		}
	}
	return false
}
