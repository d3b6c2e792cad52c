package hybrid

// sample adds an exchange with a server to the estimate of the server's clock. The masters
// of a Cluster may have different clocks.
func (c *core) sample(v *server, sent, recv, now int64) {
	if !v.offset.sample(sent, recv, now, c.now-c.local) {
		return
	}
	for _, i := range v.shards {
		c.applyOffset(i)
		c.link.Part(i).Step(v.offset.step, sent, now)
	}
}

// applyOffset gives the counters of a shard the offset of the clock of its server. That of
// shard 0, which every heartbeat samples, is the guess for shards that have not answered.
func (c *core) applyOffset(shard int) {
	f := &c.shards[shard].server.offset
	c.link.Part(shard).SetOffset(f.ns, f.err)
	if shard == 0 {
		c.link.Part(-1).SetOffset(f.ns, -1)
	}
}
