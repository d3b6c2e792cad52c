package hybrid

import "math"

// expectNodes lets a new core count so many nodes until it has heard of them,
// and their fair shares from the first check on: whether Redis is away is known
// only when an exchange has failed, and until then each process of a fleet that
// starts would admit the whole limit. Its units weigh more, but the reports of
// them are as urgent as ever, so that one exchange ends it if Redis is there.
func (c *core) expectNodes(n int64) {
	c.nodes, c.state.Nodes = n, int(n)
	c.link.SetNodes(n)
	c.holdNodes(math.MaxInt64)
	if c.cfg.fallback != FairShare {
		return
	}
	for i := range c.shards {
		c.shards[i].weighs = true
	}
	c.link.SetMode(c.cfg.fallback.weight(n), false)
}

// countNodes takes over the number of live nodes. It falls to the most that has
// been told for a heartbeat and a half: when Redis has lost the list, every
// node that lives enters itself again within one, and not everybody notices
// the loss at once.
func (c *core) countNodes(n int64) {
	if c.now < c.floorTo {
		n = max(n, c.floor)
	}
	switch {
	case n < 1:
		return
	case n >= c.nodes:
		c.fallAt = 0
	case c.fallAt == 0:
		c.fall, c.fallAt = n, c.now
		return
	case c.now-c.fallAt < c.cfg.heartbeat*3/2:
		c.fall = max(c.fall, n)
		return
	default:
		n, c.fallAt = max(c.fall, n), 0
	}
	if n == c.nodes {
		return
	}
	c.nodes = n
	c.link.SetNodes(n)
	c.applyWeight()
}

// holdNodes keeps the number of nodes from falling for as long as all of them
// need to enter themselves anew: after an outage, after Redis has lost
// their entries, and at the start of a fleet of known size. Otherwise the first to come back would take itself for the
// only one, and the whole limit with it should Redis go away again.
func (c *core) holdNodes(until int64) {
	c.floor, c.floorTo = max(c.nodes, 1), until
}

// beatsToReturn is how many heartbeats (or the longest pause between probes)
// the nodes are given to come back.
const beatsToReturn = 4
