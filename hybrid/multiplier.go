package hybrid

// applyMultiplier gives all counters the cost multiplier that follows from the number of nodes.
func (c *core) applyMultiplier() {
	c.link.SetFallback(c.cfg.fallback.multiplier(c.members.count))
	for i := range c.shards {
		c.applyMode(i)
	}
}

// applyMode gives the counters of a shard the cost multiplier of a unit: that of the
// fallback policy during an outage, else 1. While a shard returns from an outage its
// counters keep the multiplier of the outage; each gets 1 with its own answer, or when the
// shard has been sent all that it missed. It is the same at the start with ExpectedNodes,
// until the shard's server has answered.
func (c *core) applyMode(shard int) {
	w := c.cfg.fallback.multiplier(c.members.count)
	s := &c.shards[shard]
	c.multipliersChanged = true
	s.multiplied = s.server.health == down || !s.healthy() && s.multiplied
	if s.multiplied {
		c.link.Part(shard).SetMode(w, c.outageAt != 0) // at the start there may be no outage
	} else {
		c.link.Part(shard).SetMode(1, false)
	}
}

// applyWithoutShard gives the multiplier to keys without a counter of their own.
func (c *core) applyWithoutShard() {
	gone := true
	c.multipliersChanged = false
	for i := range c.shards {
		if c.shards[i].healthy() {
			c.link.Part(-1).SetMode(1, false)
			return
		}
		gone = gone && c.shards[i].server.health == down
	}
	if gone {
		c.link.Part(-1).SetMode(c.cfg.fallback.multiplier(c.members.count), true)
	}
}

// expectNodes makes a new core count n nodes until Redis has reported them, and with
// FairShare makes each unit cost n from the first check on. That Redis is unreachable is
// known only after an exchange has failed; until then each process of a fleet that starts
// would admit the whole limit. Reports are as urgent as without an outage, so that one
// answer of Redis ends this.
func (c *core) expectNodes(n int64) {
	c.members.count, c.state.Nodes = n, int(n)
	c.link.SetNodes(n)
	c.members.holdUntilAnswer()
	if c.cfg.fallback != FairShare {
		return
	}
	for i := range c.shards {
		c.shards[i].multiplied = true
	}
	c.link.SetMode(c.cfg.fallback.multiplier(n), false)
}

// countNodes applies the number of live nodes that a heartbeat has reported.
func (c *core) countNodes(n int64) {
	if !c.members.reported(n, c.now, c.cfg.heartbeat) {
		return
	}
	c.link.SetNodes(c.members.count)
	c.applyMultiplier()
}
