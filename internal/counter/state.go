package counter

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/limit"
)

// more is what most counters of leaky buckets do not need.
type more struct {
	key   *byte           // first byte of the key, if that is neither in the counter nor behind it; immutable
	state algorithm.State // nil: the bucket of the counter
	story *story
	piece *piece // the piece that this is part of; nil: none
}

// story is the history of a key: of resets, of bookings ahead and of clocks that stood
// still. Few keys have one.
type story struct {
	gen     int64      // generation of the authority's state
	heard   int64      // the authority's clock at its last answer
	witness int64      // ns; until then views from before a reset that was made here could matter
	backGen int64      // gen when the oldest units were handed back that the authority has not acknowledged
	apart   int64      // see clocksApart, at the last answer for a funnel
	era     uint32     // how often this counter was reset or set
	booked  []*Booking // of a funnel, by due
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

// tell returns the history for writing.
func (c *Counter) tell() *story {
	m := c.with()
	if m.story == nil {
		m.story = new(story)
	}
	return m.story
}

// told returns the history for reading.
func (c *Counter) told() story {
	if c.more == nil || c.more.story == nil {
		return story{}
	}
	return *c.more.story
}

// hasStory reports whether the key has a history.
func (c *Counter) hasStory() bool { return c.more != nil && c.more.story != nil }

// Rule returns the rule that c counts by: the latest that it was asked under.
func (c *Counter) Rule() *limit.Rule { return c.law.Load() }

// Hash returns the hash that c was made with.
func (c *Counter) Hash() uint64 { return c.hash }

func (c *Counter) rule() *limit.Rule    { return c.law.Load() }
func (c *Counter) alg() limit.Algorithm { return c.rule().Algorithm() }
func (c *Counter) name() string         { return c.rule().Name() }

// part returns the part of the link for the counter's shard, nil without a link.
func (c *Counter) part() *Part { return c.place.Load() }

// link returns the link to the reconciler, nil if nothing is shared.
func (c *Counter) link() *Link {
	if p := c.place.Load(); p != nil {
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

func (c *Counter) gen() int64     { return c.told().gen }
func (c *Counter) heard() int64   { return c.told().heard }
func (c *Counter) backGen() int64 { return c.told().backGen }
func (c *Counter) apart() int64   { return c.told().apart }

func (c *Counter) setGen(g int64) {
	if g != 0 || c.hasStory() {
		c.tell().gen = g
	}
}

// setHeard notes the authority's clock. It matters only if there is a generation.
func (c *Counter) setHeard(t int64) {
	if c.hasStory() {
		c.tell().heard = t
	}
}

// setWitness keeps c from being forgotten until a time, in ns.
func (c *Counter) setWitness(until int64) {
	if until != 0 || c.hasStory() {
		c.tell().witness = until
	}
}

func (c *Counter) setBackGen(g int64) {
	if g != 0 || c.hasStory() {
		c.tell().backGen = g
	}
}

// setApart notes how far the clocks are apart, see repairKnownLocked. Less than leastApart
// counts as nothing, because two readings are never taken at the same moment.
func (c *Counter) setApart(ns int64) {
	if ns >= leastApart || ns <= -leastApart || c.hasStory() {
		c.tell().apart = ns
	}
}

// newEra voids all bookings.
func (c *Counter) newEra() {
	s := c.tell()
	s.era++
	s.booked = nil
}
