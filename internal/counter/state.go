package counter

import (
	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// with returns more for writing.
func (c *Counter) with() *more {
	switch c.more {
	case nil:
		c.more = new(more)
	case &foldedAway:
		c.unfold()
	}
	return c.more
}

// state returns what c counts. It unfolds a folded window.
func (c *Counter) state() algorithm.State {
	if c.more == nil {
		return &c.bucket // here, so that this much is inlined
	}
	return c.stateElsewhere()
}

func (c *Counter) stateElsewhere() algorithm.State {
	switch {
	case c.isFolded():
		return c.unfold()
	case c.more.state != nil:
		return c.more.state
	}
	return &c.bucket
}

// leaky returns the leaky bucket, nil if c counts by another algorithm. It is for what only a
// leaky bucket can: be booked ahead, and have debts.
func (c *Counter) leaky() *algorithm.LeakyBucket {
	if c.more == nil || !c.isFolded() && c.more.state == nil {
		return &c.bucket
	}
	return nil
}

// beginLocked gives a new counter its state. off is how far the authority's clock is ahead;
// sure: that was measured.
func (c *Counter) beginLocked(r *limit.Rule, now, off int64, sure bool) {
	if c.more == nil && algorithm.IsFoldable(r) {
		c.more, c.bucket = &foldedAway, algorithm.NewFolded(arith.Of(r.Arith()), now, off, sure)
	} else if s := algorithm.New(r, now, off, sure); s != nil {
		c.with().state = s
	}
}

// unsyncedUnits returns the units that the authority has not acknowledged.
func (c *Counter) unsyncedUnits() int64 {
	if c.link() == nil {
		return 0
	}
	pending, sent := c.unitsLocked()
	return pending + sent
}

// pendUnits returns the units that the authority has not been sent.
func (c *Counter) pendUnits() int64 {
	pending, _ := c.unitsLocked()
	return pending
}

// unitsLocked returns the units that the authority has not been sent, and those that it has
// not acknowledged. A folded window stays folded: it has its units where a bucket has them.
func (c *Counter) unitsLocked() (pending, sent int64) {
	if c.isFolded() {
		return c.bucket.Units()
	}
	return c.state().Units()
}

// rollLocked moves the state on to now, by the known offset of the authority's
// clock, and counts the units that have left it unreported.
func (c *Counter) rollLocked(now int64) {
	if c.link() != nil {
		c.followClockLocked(now)
	}
	c.expiredLocked(c.state().Roll(c.rule(), now, modeMultiplier(c.mode())))
}

// expiredLocked counts pending units that do not count any more and were not reported.
func (c *Counter) expiredLocked(units int64) {
	if units > 0 && c.link() != nil {
		c.link().expired.Add(units)
	}
}

// followClockLocked applies what is known of the authority's clock.
func (c *Counter) followClockLocked(now int64) {
	c.state().Follow(c.rule(), now, c.last, modeMultiplier(c.mode()), c.clock())
}

// clock returns what is known of the authority's clock. Without a link there is none but ours.
func (c *Counter) clock() (k algorithm.Clock) {
	p := c.part
	if p == nil {
		return algorithm.Clock{Sure: true}
	}
	k.Off, k.Sure = p.latest()
	k.Slack = p.slack.Load()
	if k.WentBack = c.freshAt < p.backAt.Load(); k.WentBack {
		k.BackTo = p.backTo.Load()
	}
	return k
}

// sourceLocked returns on what knowledge a decision of c rests.
func (c *Counter) sourceLocked() limit.Source {
	switch {
	case c.link() == nil:
		return limit.SourceLocal
	case modeDegraded(c.mode()):
		return limit.SourceDegraded
	case c.born == noAnswer:
		return limit.SourceUnsynced
	}
	return limit.SourceSynced
}
