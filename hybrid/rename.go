package hybrid

import "fmt"

// rename gives the node a new name after somebody else was seen to report under
// the one it has. A shard whose flight may have been booked under the old name
// keeps that name until its fate is known; the others begin anew at once. The
// next heartbeat enters the node among the live ones. All counters are asked for:
// only where Redis has a record of the node does a heartbeat show that Redis has
// lost what the node knows.
func (c *core) rename() {
	old := c.node
	c.node = c.ids.name()
	c.happened(Event{Kind: EventRenamed, Reason: fmt.Sprintf("another process reports as %s, perhaps a copy of this one; this one is %s now", old, c.node)})
	c.stats.renames.Add(1)
	c.emit(efName{c.node})
	for i := range c.shards {
		if s := &c.shards[i]; s.flight == nil {
			s.begin(c.node)
		}
	}
	c.refreshAll()
}

// nameTaken handles that Redis has somebody else's batch under the number of the
// flight of s, or a later one. Under that name the flight cannot be booked any
// more, so it is sent under the node's new one.
func (c *core) nameTaken(s *shard) {
	c.giveUpRefunds(s) // it may have been booked before the other came
	if s.node == c.node {
		c.rename()
	}
	s.begin(c.node)
	s.seq = 1
	s.retry = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
}
