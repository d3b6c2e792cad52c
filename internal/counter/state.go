package counter

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// more is what most counters of leaky buckets do not need.
type more struct {
	key      *byte           // first byte of the key, if that is neither in the counter nor behind it; immutable
	state    algorithm.State // nil: the bucket of the counter
	history  *history        // nil: none
	unfolded *unfolded       // what this is part of; nil: nothing
}

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

// Rule returns the rule that c counts by: the latest that it was asked under.
func (c *Counter) Rule() *limit.Rule { return c.latestRule.Load() }

// Hash returns the hash that c was made with.
func (c *Counter) Hash() uint64 { return c.hash }

func (c *Counter) rule() *arith.Rule    { return arith.Of(c.latestRule.Load().Arith()) }
func (c *Counter) alg() limit.Algorithm { return c.latestRule.Load().Algorithm() }
func (c *Counter) name() string         { return c.rule().Name }

// part returns the part of the link for the counter's shard, nil without a link.
func (c *Counter) part() *Part { return c.linkPart.Load() }

// link returns the link to the reconciler, nil if nothing is shared.
func (c *Counter) link() *Link {
	if p := c.linkPart.Load(); p != nil {
		return p.link
	}
	return nil
}

func (c *Counter) mode() int64     { return int64(c.modeBits) }
func (c *Counter) setMode(m int64) { c.modeBits = int32(m) }

// setUrgentAt sets how many pending units make a report urgent: at least 1. It is capped at
// 1<<32 − 1: with so many units a report too many does not matter.
func (c *Counter) setUrgentAt(n int64) { c.urgentAt = uint32(min(max(n, 1), math.MaxUint32)) }

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
