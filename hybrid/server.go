package hybrid

import (
	"errors"
	"math"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// server is what is known of one server of Redis: the only one, or a master of a Cluster.
// Health is a server's, because what ails it ails all shards that it holds.
type server struct {
	name     string // its address; "": of a shard by itself
	shards   []int  // that it holds
	health   health
	rounds   round
	bookedAt int64 // pace, when it answered a batch last
	offset   offsetFilter
	load     *load
	turn     int      // shard to look at first, so that all get their turn
	told     []answer // of the exchange that is looked at, see fared
}

// load bounds what is under way to a server. Shards by themselves share one with each other,
// or with the server that they were on: they may well be on the same.
type load struct {
	budget budget
	slots  int    // pipelines that may still be started
	asks   int    // shard that the next heartbeat asks first
	paceAt int64  // no pipeline before that tells what was missed
	paced  uint64 // the one under way; 0: none
}

// health is whether a server can be reached.
type health uint8

const (
	starting health = iota // it has not been heard of yet
	up
	down
	trying // it has answered a probe since it was down, but may still refuse batches
)

// round counts exchanges that failed, those that were under way at the same time as
// one: a server that stalls once fails all of them.
type round struct {
	fails int
	at    int64 // pace, when the latest was counted
}

// failed counts an exchange that began at a time and has failed now.
func (r *round) failed(began, now int64) {
	if began >= r.at || r.fails == 0 {
		r.fails, r.at = r.fails+1, now
	}
}

// answer is what has become of an exchange for one shard.
type answer struct {
	shard int
	err   error
	list  bool // for the list of nodes, which is beside that shard
}

// fared takes note of what has become of an exchange that began at a time. answered is
// told of each server that has answered for some of its shards. It returns the class of
// what has failed that passes soonest.
func (c *core) fared(began int64, all []answer, answered func(*server)) (class redisstore.Class) {
	var of []*server
	for _, a := range all {
		v := c.shards[a.shard].server
		if len(v.told) == 0 {
			of = append(of, v)
		}
		v.told = append(v.told, a)
	}
	for _, v := range of {
		worked := func(a answer) bool { return a.err == nil }
		some := slices.ContainsFunc(v.told, worked)
		if some {
			answered(v)
		}
		failing := slices.DeleteFunc(v.told, worked)
		if len(failing) > 0 {
			if k := c.failing(v, began, some, failing); class == 0 || k < class {
				class = k
			}
		}
		clear(v.told)
		v.told = v.told[:0]
	}
	if class != 0 {
		c.stats.failures.Add(1)
	}
	return class
}

// apartAfter is after how many times the rounds that make an outage a shard is one, although
// its server answers for others: more answers than are lost in a row by chance.
const apartAfter = 4

// failing takes note of the shards of a server for which an exchange did not work. One for
// which none does, while some do for others, is taken for a server of its own.
func (c *core) failing(v *server, began int64, some bool, list []answer) redisstore.Class {
	class := c.noteFailure(list[0].err)
	if !some {
		c.failed(v, began, class)
	}
	for _, a := range list {
		if a.list {
			continue
		}
		s := &c.shards[a.shard]
		s.retry = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
		if s.rounds.fails == 0 {
			s.failing = began
		}
		if s.rounds.failed(began, c.now); s.rounds.fails >= apartAfter*c.cfg.degradeAfter && (some || v.bookedAt > s.failing) && len(v.shards) > 1 {
			c.setHealth(c.alone(a.shard), down)
		}
	}
	return class
}

// failed takes note of an exchange that began at a time, and that a server did not answer. One
// of which nothing has been heard since it was away, or ever, but heartbeats is away at once.
func (c *core) failed(v *server, began int64, class redisstore.Class) {
	v.rounds.failed(began, c.now)
	if v.rounds.fails >= c.cfg.degradeAfter || v.health != up || class == redisstore.ClassMisconfigured {
		c.setHealth(v, down)
	}
}

// noteFailure keeps why an exchange has failed.
func (c *core) noteFailure(err error) redisstore.Class {
	class, reason := redisstore.Classify(err)
	if errors.Is(err, errTimeout) {
		class, reason = redisstore.ClassUnavailable, "timeout"
	}
	c.reason, c.cause, c.news = reason, err, true
	return class
}

// booked takes note that a server has answered a batch.
func (c *core) booked(v *server) {
	for _, a := range v.told {
		if a.err == nil {
			c.shards[a.shard].rounds.fails = 0
		}
	}
	if v.rounds.fails, v.bookedAt = 0, c.now; v.health == trying {
		c.setHealth(v, up)
	}
}

// reached takes note that a server has answered a heartbeat. If it was down it is told
// what it has missed.
func (c *core) reached(v *server) {
	for _, a := range v.told {
		if s := &c.shards[a.shard]; a.err == nil && !a.list && s.flight == nil {
			s.rounds.fails = 0
		}
	}
	if v.health != down {
		// A batch that is under way, and has failed before, speaks for itself.
		if !slices.ContainsFunc(v.shards, func(i int) bool { return c.shards[i].flight != nil }) {
			v.rounds.fails = 0
		}
		return
	}
	c.wheel.all(c.ready)
	for _, i := range v.shards {
		s := &c.shards[i]
		s.backlog = append(s.backlog, s.normal...)
		s.normal, s.normalAt, s.retry, s.missed = nil, 0, 0, true
	}
	v.rounds.fails, v.load.paceAt = 0, min(v.load.paceAt, c.now)
	v.load.budget.anew()
	c.setHealth(v, trying)
}

// count returns how many shards are on servers of a health.
func (c *core) count(h health) (n int) {
	for _, v := range c.servers {
		if v.health == h {
			n += len(v.shards)
		}
	}
	return n
}

func (c *core) setHealth(v *server, h health) {
	if v.health == h {
		return
	}
	v.health = h
	if h == down && c.downAt == 0 {
		c.downAt = c.now
		c.holdNodes(math.MaxInt64)
	}
	if h == down && c.outageAt == 0 {
		c.outageAt = c.now
	}
	for _, i := range v.shards {
		c.applyMode(i)
	}
}

// checkReturned ends the return of the shards that have been told all that they have
// missed, and of servers that have missed nothing.
func (c *core) checkReturned() {
	for i := range c.shards {
		if s := &c.shards[i]; s.missed && s.server.health != down && !s.owed() {
			s.missed = false
			c.applyMode(i)
		}
	}
	for _, v := range c.servers {
		missed := func(i int) bool { return c.shards[i].missed }
		if (v.health == starting || v.health == trying) && v.offset.known && !slices.ContainsFunc(v.shards, missed) {
			c.setHealth(v, up)
		}
	}
}

// cutOff reports whether a server is away, or has only answered a probe since it was, and
// is sent the first batch: one that takes the one may still refuse the other, and
// nobody wants to be told of each attempt.
func (c *core) cutOff(v *server) bool {
	owed := func(i int) bool { return c.shards[i].missed && c.shards[i].owed() }
	return v.health == down || v.health == trying && slices.ContainsFunc(v.shards, owed)
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

// sampleShard feeds an exchange for one shard to it. If there are several servers and that
// shows another clock, the shard has moved or the clock was set: the next heartbeat tells.
func (c *core) sampleShard(shard int, sent, recv, now int64) {
	v := c.shards[shard].server
	if len(c.servers) > 1 && len(v.shards) > 1 && v.offset.contradicts(sent, recv, now) {
		v = c.alone(shard)
		c.beatAt = min(c.beatAt, c.now)
	}
	c.sample(v, sent, recv, now)
}

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
