package hybrid

// applyWeight tells the counters that a unit weighs another number now.
func (c *core) applyWeight() {
	c.link.SetFallback(c.cfg.fallback.weight(c.nodes))
	for i := range c.shards {
		c.applyMode(i)
	}
}

// applyMode tells the counters of a shard what a unit weighs. While the shard returns from
// an outage the outage's weight stays: a counter gets its normal one with its answer, or
// when all are in. So it is for expected nodes (see expectNodes) until the shard's server
// has answered.
func (c *core) applyMode(shard int) {
	w := c.cfg.fallback.weight(c.nodes)
	s := &c.shards[shard]
	c.remode = true
	s.weighs = s.server.health == down || !s.well() && s.weighs
	if s.weighs {
		c.link.Part(shard).SetMode(w, c.outageAt != 0) // at the start it need not be one
	} else {
		c.link.Part(shard).SetMode(1, false)
	}
}

// applyUnplaced does the same for counters of which it is not known where they belong.
func (c *core) applyUnplaced() {
	gone := true
	c.remode = false
	for i := range c.shards {
		if c.shards[i].well() {
			c.link.Part(-1).SetMode(1, false)
			return
		}
		gone = gone && c.shards[i].server.health == down
	}
	if gone {
		c.link.Part(-1).SetMode(c.cfg.fallback.weight(c.nodes), true)
	}
}
