package hybrid

// sample feeds an exchange with a server to the estimate of its clock. Masters of a
// Cluster need not agree on the time.
func (c *core) sample(v *server, sent, recv, now int64) {
	if !v.offset.sample(sent, recv, now, c.now-c.local) {
		return
	}
	for _, i := range v.shards {
		c.applyOffset(i)
		c.link.Part(i).Step(v.offset.step, sent, now)
	}
}

// applyOffset tells the counters of a shard how far the clock of its server is ahead. That
// of shard 0, which every heartbeat reads, stands for keys of which it is not known where
// they belong.
func (c *core) applyOffset(shard int) {
	f := &c.shards[shard].server.offset
	c.link.Part(shard).SetOffset(f.ns, f.err)
	if shard == 0 {
		c.link.Part(-1).SetOffset(f.ns, -1)
	}
}
