package hybrid

import "slices"

// shardsToAsk returns the shards that the next heartbeat asks for, and in how many
// heartbeats all shards are asked for that there is a reason to ask for.
func (c *core) shardsToAsk() (list []int, beats int64) {
	beats = 1
	var seen []*load
	for k, v := range c.servers {
		if slices.Contains(seen, v.load) {
			continue
		}
		seen = append(seen, v.load)
		var shards []int
		for _, o := range c.servers[k:] {
			if o.load == v.load {
				shards = append(shards, o.shards...)
			}
		}
		some, of := c.shardsToAskOf(v.load, shards)
		list, beats = append(list, some...), max(beats, of)
	}
	return list, beats
}

// shardsToAskOf returns the same for shards that may be on one server: a few at a time, in
// turn. A slow server must be able to answer a heartbeat in time. Else no node would return
// to it after an outage.
func (c *core) shardsToAskOf(l *load, shards []int) (list []int, beats int64) {
	n, gone, wanted, spare := len(shards), 0, 0, -1
	for _, i := range shards {
		if c.shards[i].server.health == down {
			gone++
		}
	}
	most := max(c.cfg.shardsPerPipe, n/maxBeatsForAll)
	if gone > n/2 {
		most = c.cfg.resyncPipe
	}
	next := l.nextAsked % n
	for k := range n {
		at := (l.nextAsked + k) % n
		i := shards[at]
		switch {
		case !c.reasonToAsk(i):
			// A shard that was never written has no record to compare.
			if spare < 0 || c.shards[shards[spare]].seq == 0 && c.shards[i].seq > 0 {
				spare = at
			}
		case len(list) < most:
			list, next = append(list, i), at+1
			wanted++
		default:
			wanted++
		}
	}
	if len(list) == 0 && c.shards[shards[spare]].seq > 0 {
		list, next = []int{shards[spare]}, spare+1
	}
	l.nextAsked = next % n
	return list, int64(max(1, (wanted+most-1)/most))
}

// reasonToAsk reports whether a heartbeat should ask for a shard.
func (c *core) reasonToAsk(i int) bool {
	s := &c.shards[i]
	switch v := s.server; {
	case v.health == down, !v.offset.known && v != c.shards[0].server:
		return true
	case (c.beats.lastFailed || c.downAt != 0) && i == v.shards[0]:
		// Ask for one shard of each server. The list of nodes does not say whether the servers
		// would book batches: either may work without the other.
		return true
	case s.seq == 0:
		return false
	case v.health != up || s.missed || v.rounds.fails > 0 || s.rounds.fails > 0:
		return true
	}
	// If a batch is sent before the next heartbeat, its answer says whether Redis has lost data.
	at, _ := s.due()
	return s.pipe == 0 && at == 0
}

// maxBeatsForAll is the largest number of heartbeats in which a single server is asked for
// all shards.
const maxBeatsForAll = 16
