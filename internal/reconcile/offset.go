package reconcile

// offsetFilter estimates how far Redis' clock is ahead of ours, from exchanges in which
// Redis has answered its time. As in NTP: Redis read its clock between the sending and the
// receiving, so the fastest exchange gives the smallest error.
//
// The error of an estimate grows with its age, because clocks drift. An exchange that
// contradicts the estimate replaces it at once: it came from another server, or a clock was
// set. But an exchange that was sent before the estimate was taken may be older than that
// change. It is ignored if it contradicts the estimate.
//
// The zero offsetFilter knows nothing. All times are in ns.
type offsetFilter struct {
	known bool
	ns    int64 // Redis' clock minus ours
	err   int64 // bound of the error when the estimate was taken
	at    int64 // when it was taken, on our clock
	lag   int64 // how far our clock was then behind one that never stops
	step  int64 // by how much at most the latest exchange has found Redis' clock set forward; negative: back
	shown int64 // Redis' time at the latest exchange
	since int64 // the earliest time that Redis' clock can have shown since it was set
}

// offsetDrift is the assumed drift between two clocks: 1 in 2,000, which is more than real
// oscillators show.
const offsetDrift = 2000

// sample adds an exchange: when it was sent and received on our clock, and Redis' time. lag
// is how far our clock is behind one that never stops; if our clock stood still, Redis'
// clock was not set. It returns whether the estimate has changed.
func (f *offsetFilter) sample(sent, recv, server, lag int64) bool {
	if recv < sent {
		return false
	}
	lo, hi := server-recv, server-sent // the offset is between these
	grown := f.grown(recv)
	fresh := offsetFilter{known: true, ns: lo + (hi-lo)/2, err: (hi-lo)/2 + 1000, at: recv, lag: lag, shown: server}
	agrees, shown := f.holds(sent, recv, server), f.shown
	if agrees || sent >= f.at {
		f.shown = server
	}
	if f.known && (agrees && fresh.err > grown || !agrees && sent < f.at) {
		return false
	}
	changed := !f.known || fresh.ns != f.ns
	if f.known && !agrees {
		fresh.step = widest(fresh.ns-f.ns-(lag-f.lag), grown+fresh.err)
		fresh.since = min(server, shown+fresh.step)
	}
	*f = fresh
	return changed
}

// widest returns the largest step that a measurement with an error of at most err allows. Too small a step
// would make units that no longer count in Redis look like lost data. A step that may be 0 counts as 0.
func widest(step, err int64) int64 {
	switch {
	case step > err:
		return step + err
	case step < -err:
		return step - err
	}
	return 0
}

// grown returns the bound of the error at a time on our clock.
func (f *offsetFilter) grown(now int64) int64 { return f.err + (now-f.at)/offsetDrift }

// holds reports whether an exchange agrees with the estimate.
func (f *offsetFilter) holds(sent, recv, server int64) bool {
	return f.ns >= server-recv-f.grown(recv) && f.ns <= server-sent+f.grown(recv)
}

// agrees reports whether two estimates may be of the same clock.
func (f *offsetFilter) agrees(o *offsetFilter) bool {
	later := max(f.at, o.at)
	return max(f.ns-o.ns, o.ns-f.ns) <= f.grown(later)+o.grown(later)
}

// sample adds an exchange with a server to the estimate of the server's clock. The masters
// of a Cluster may have different clocks.
func (c *Machine) sample(v *server, sent, recv, now int64) {
	if !v.offset.sample(sent, recv, now, c.now-c.local) {
		return
	}
	for _, i := range v.shards {
		c.applyOffset(i)
		c.link.Part(i).Step(v.offset.step, sent, v.offset.since)
	}
}

// applyOffset gives the counters of a shard the offset of the clock of its server. That of
// shard 0, which every heartbeat samples, is the guess for shards that have not answered.
func (c *Machine) applyOffset(shard int) {
	f := &c.shards[shard].server.offset
	c.link.Part(shard).SetOffset(f.ns, f.err)
	if shard == 0 {
		c.link.Part(-1).SetOffset(f.ns, -1)
	}
}
