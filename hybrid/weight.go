package hybrid

// applyWeight tells the counters that a unit weighs another number now.
func (c *core) applyWeight() {
	c.link.SetFallback(c.cfg.fallback.weight(c.members.count))
	for i := range c.shards {
		c.applyMode(i)
	}
}

// applyMode tells the counters of a shard what a unit weighs. While the shard returns from
// an outage the outage's weight stays: a counter gets its normal one with its answer, or
// when all are in. So it is for expected nodes (see expectNodes) until the shard's server
// has answered.
func (c *core) applyMode(shard int) {
	w := c.cfg.fallback.weight(c.members.count)
	s := &c.shards[shard]
	c.weightsChanged = true
	s.weighted = s.server.health == down || !s.healthy() && s.weighted
	if s.weighted {
		c.link.Part(shard).SetMode(w, c.outageAt != 0) // at the start it need not be one
	} else {
		c.link.Part(shard).SetMode(1, false)
	}
}

// applyUnplaced does the same for counters of which it is not known where they belong.
func (c *core) applyUnplaced() {
	gone := true
	c.weightsChanged = false
	for i := range c.shards {
		if c.shards[i].healthy() {
			c.link.Part(-1).SetMode(1, false)
			return
		}
		gone = gone && c.shards[i].server.health == down
	}
	if gone {
		c.link.Part(-1).SetMode(c.cfg.fallback.weight(c.members.count), true)
	}
}

// expectNodes lets a new core count so many nodes until it has heard of them,
// and their fair shares from the first check on: whether Redis is away is known
// only when an exchange has failed, and until then each process of a fleet that
// starts would admit the whole limit. Its units weigh more, but the reports of
// them are as urgent as ever, so that one exchange ends it if Redis is there.
func (c *core) expectNodes(n int64) {
	c.members.count, c.state.Nodes = n, int(n)
	c.link.SetNodes(n)
	c.members.holdUntilAnswer()
	if c.cfg.fallback != FairShare {
		return
	}
	for i := range c.shards {
		c.shards[i].weighted = true
	}
	c.link.SetMode(c.cfg.fallback.weight(n), false)
}

// countNodes applies the number of live nodes that a heartbeat has reported.
func (c *core) countNodes(n int64) {
	if !c.members.reported(n, c.now, c.cfg.heartbeat) {
		return
	}
	c.link.SetNodes(c.members.count)
	c.applyWeight()
}
