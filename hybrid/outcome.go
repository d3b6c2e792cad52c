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

// exchangeEnded handles how an exchange that was sent at began has ended for its shards. It
// calls answered for each server that has answered for any of them. It returns the class of
// the failures, 0 if there are none: of several the one that may pass soonest.
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
		c.stats.failed(c.lastReason)
	}
	return class
}

// apartAfter bounds how long a shard may fail while its server answers for others: after
// that many times degradeAfter rounds it is an outage of the shard. So many answers are not
// lost in a row by chance.
const apartAfter = 4

// failing handles the shards of a server for which an exchange has failed. some says that
// the server has answered for others of its shards. A shard for which every exchange fails
// while the server answers for others becomes a server of its own, which is down.
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
			s.failedSince = began
		}
		if s.rounds.failed(began, c.now); s.rounds.fails >= apartAfter*c.cfg.degradeAfter && (some || v.bookedAt > s.failedSince) && len(v.shards) > 1 {
			c.setHealth(c.isolate(a.shard), down)
		}
	}
	return class
}

// failed counts an exchange that a server has not answered. A server that has not answered
// a batch since its latest outage, or ever, is down at once.
func (c *core) failed(v *server, began int64, class redisstore.Class) {
	v.rounds.failed(began, c.now)
	if v.rounds.fails >= c.cfg.degradeAfter || v.health != up || class == redisstore.ClassMisconfigured {
		c.setHealth(v, down)
	}
}

// isTimeout reports whether an exchange has failed because its time was up.
func isTimeout(err error) bool {
	_, reason := redisstore.Classify(err)
	return reason == "timeout" || errors.Is(err, errTimeout)
}

// noteFailure keeps the reason of a failure, and returns its class.
func (c *core) noteFailure(err error) redisstore.Class {
	class, reason := redisstore.Classify(err)
	if isTimeout(err) {
		class, reason = redisstore.ClassUnavailable, "timeout"
	}
	c.lastReason, c.lastErr, c.reasonChanged = reason, plain(err), true
	return class
}

// booked notes that a server has answered a batch.
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

// reached notes that a server has answered a heartbeat. If the server was down, its queues
// become the backlog: what it may have missed is sent first, at a limited pace.
func (c *core) reached(v *server) {
	for _, a := range v.answers {
		if s := &c.shards[a.shard]; a.err == nil && !a.list && s.flight == nil {
			s.rounds.fails = 0
		}
	}
	if v.health != down {
		// A batch that is being sent again decides by itself whether the server is up.
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
