package counter

import "github.com/hybridlimit/hybridlimit/limit"

// Explanation is what a counter knows about its key, for people.
type Explanation struct {
	Result      limit.Result // of a check for one unit, which consumes nothing
	Known       int64        // units that count as far as Redis has said
	Pending     int64        // units that were admitted here, and that Redis has not acknowledged
	Answered    int64        // when Redis last answered, ns; 0: it has not
	Received    int64        // when the notice that the counter obeys was received, ns; 0: there is none
	Until       int64        // until when it holds, ns
	Quarantined bool         // Redis' copy of the key is broken
}

// Explain returns what c knows at now. It is no use of the key. ok is false if c was dropped.
func (c *Counter) Explain(now int64) (e Explanation, ok bool) {
	c.lock(now)
	defer c.unlock()
	if c.dead {
		return e, false
	}
	now = max(now, c.last, 0)
	if c.part != nil {
		c.followModeLocked()
	}
	c.rollLocked(now)
	e.Result = c.answerLocked(now, 1, c.judgeLocked(now, 1))
	if c.link() == nil {
		return e, true
	}
	e.Known, e.Pending = c.replica().KnownUnits(c.rule(), now), c.unsyncedUnits()
	if c.isAnsweredLocked() {
		e.Answered = c.freshAt
	}
	if n := c.notice; n != nil {
		e.Received, e.Until = n.received, n.until
	}
	e.Quarantined = c.is(quarantined)
	return e, true
}
