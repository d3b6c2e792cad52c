package hybrid

import "fmt"

// rename gives the node a new name, because another process was seen to report under the
// present one.
//
// A shard whose flight may have been booked under the old name keeps that name until it is
// known whether it was. The other shards use the new name at once. The next heartbeat
// enters the new name into the list of live nodes.
//
// All counters are then reported. Only where Redis has a record of the node can a heartbeat
// show that Redis has lost data, and the new name has no record yet.
func (c *core) rename() {
	old := c.node
	c.node = c.ids.name()
	c.happened(Event{Kind: EventRenamed, Reason: fmt.Sprintf("another process reports as %s, perhaps a copy of this one; this one is %s now", old, c.node)})
	c.stats.renames.Add(1)
	c.emit(efName{c.node})
	c.notices.channel = "" // the next heartbeat subscribes to the echo of the new name
	for i := range c.shards {
		if s := &c.shards[i]; s.flight == nil {
			s.begin(c.node)
		}
	}
	c.refreshAll()
}

// nameTaken handles the answer that another process has booked a batch under the number of
// the flight of s, or a later one. The flight cannot be booked under that name any more, so
// it is sent again under the new name of the node.
func (c *core) nameTaken(s *shard) {
	c.giveUpRefunds(s) // the flight may have been booked before the other batch was
	if s.node == c.node {
		c.rename()
	}
	s.begin(c.node)
	s.seq = 1
	s.retry = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
}
