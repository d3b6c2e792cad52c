package hybrid

import (
	"errors"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

var (
	errTimeout      = errors.New("hybrid: no answer within the command timeout")
	errMissingReply = errors.New("hybrid: redis answered fewer commands than it was sent")
)

// fared takes note of what has become of an exchange that began at a time. answered is
// told of each server that has answered for some of its shards. It returns the class of
// what has failed that passes soonest.
func (c *core) exchangeEnded(began int64, all []answer, answered func(*server)) (class redisstore.Class) {
	var of []*server
	for _, a := range all {
		v := c.shards[a.shard].server
		if len(v.answers) == 0 {
			of = append(of, v)
		}
		v.answers = append(v.answers, a)
	}
	for _, v := range of {
		worked := func(a answer) bool { return a.err == nil }
		some := slices.ContainsFunc(v.answers, worked)
		if some {
			answered(v)
		}
		failing := slices.DeleteFunc(v.answers, worked)
		if len(failing) > 0 {
			if k := c.failing(v, began, some, failing); class == 0 || k < class {
				class = k
			}
		}
		clear(v.answers)
		v.answers = v.answers[:0]
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
			c.setHealth(c.isolate(a.shard), down)
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
	c.lastReason, c.lastErr, c.reasonChanged = reason, err, true
	return class
}

// booked takes note that a server has answered a batch.
func (c *core) booked(v *server) {
	for _, a := range v.answers {
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
	for _, a := range v.answers {
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
