package hybrid

import "slices"

// place applies on which servers the shards are. addrs holds the address of each shard's
// server, empty if it is unknown. A shard whose address has changed moves to the server
// with that address if the two have the same health and clock. Else it becomes a server of
// its own for now.
func (c *core) place(addrs []string) {
	for i := range min(len(addrs), len(c.shards)) {
		from := c.shards[i].server
		if addrs[i] == from.name || addrs[i] == "" {
			continue
		}
		k := slices.IndexFunc(c.servers, func(v *server) bool { return v.name == addrs[i] })
		switch {
		case k < 0: // a replica was promoted, or the server is new
			v := c.isolate(i)
			bounds := *v.load
			bounds.slots, bounds.paced = c.cfg.maxPipes, 0
			v.name, v.load = addrs[i], &bounds
		case from.joins(c.servers[k]):
			c.move(i, c.servers[k])
		default:
			c.isolate(i)
		}
	}
}

// isolate makes a shard a server of its own, with the health of the server that it was on.
func (c *core) isolate(shard int) *server {
	from := c.shards[shard].server
	if len(from.shards) == 1 {
		from.name = ""
		return from
	}
	v := &server{health: from.health, rounds: from.rounds, bookedAt: from.bookedAt, offset: from.offset, load: from.load}
	c.servers = append(c.servers, v)
	c.move(shard, v)
	return v
}

// move puts a shard on another server. Its counters follow the clock of that server from
// now on.
func (c *core) move(shard int, to *server) {
	from := c.shards[shard].server
	from.shards = slices.DeleteFunc(from.shards, func(i int) bool { return i == shard })
	if len(from.shards) == 0 {
		c.servers = slices.DeleteFunc(c.servers, func(v *server) bool { return v == from })
	}
	to.shards = append(to.shards, shard)
	slices.Sort(to.shards)
	c.shards[shard].server = to
	if to.offset.known && to.offset != from.offset {
		c.applyOffset(shard)
	}
	c.applyMode(shard)
}

// sampleShard adds an exchange for one shard to the estimate of a clock. If it contradicts
// the estimate of the shard's server, the shard has moved to another server, or the clock
// was set. Then the shard becomes a server of its own, and a heartbeat is sent to find out.
func (c *core) sampleShard(shard int, sent, recv, now int64) {
	v := c.shards[shard].server
	if len(c.servers) > 1 && len(v.shards) > 1 && v.offset.contradicts(sent, recv, now) {
		v = c.isolate(shard)
		c.beats.next = min(c.beats.next, c.now)
	}
	c.sample(v, sent, recv, now)
}
