package local

import (
	"math"

	"github.com/hybridlimit/hybridlimit/limit"
)

// more is what most counters of funnels do without.
type more struct {
	key    *byte // where it begins, if it is not in the counter nor behind it; immutable
	window *window
	log    *slidingLog
	heir   *Counter // takes over what a dead counter still has in flight
	story  *story
	pocket *pocket // that answers instead; nil: none. Written under the lock of the counter
	piece  *piece  // that this is part of; nil: of none
}

// story is what is left of resets, of bookings ahead and of clocks that stood
// still. Few keys have any.
type story struct {
	gen     int64      // generation of the authority's state
	heard   int64      // what the authority's clock showed at its last answer
	witness int64      // until when views from before a reset that was made here could matter, ns
	backGen int64      // gen when the first units were handed back that it has not acknowledged
	apart   int64      // of our clock and the authority's, see Link.SetLag and Part.Step, when a funnel was told of last
	era     uint32     // how often this counter was reset or set
	booked  []*Booking // of a funnel, in the order in which they are due
}

// with returns what few counters have, for writing.
func (c *Counter) with() *more {
	switch c.more {
	case nil:
		c.more = new(more)
	case &foldedAway:
		c.unfold()
	}
	return c.more
}

func (c *Counter) tell() *story {
	m := c.with()
	if m.story == nil {
		m.story = new(story)
	}
	return m.story
}

// told returns the story so far, for reading.
func (c *Counter) told() story {
	if c.more == nil || c.more.story == nil {
		return story{}
	}
	return *c.more.story
}

// hasStory reports whether there is one to go on with.
func (c *Counter) hasStory() bool { return c.more != nil && c.more.story != nil }

func (c *Counter) rule() *limit.Rule    { return c.law.Load() }
func (c *Counter) alg() limit.Algorithm { return c.rule().Algorithm() }
func (c *Counter) name() string         { return c.rule().Name() }

// part returns what the link says of the counter's shard, nil without a link.
func (c *Counter) part() *Part { return c.place.Load() }

// link returns what ties c to the reconciler, nil if nothing is shared.
func (c *Counter) link() *Link {
	if p := c.place.Load(); p != nil {
		return p.link
	}
	return nil
}

func (c *Counter) mode() int64     { return int64(c.modeBits.Load()) }
func (c *Counter) setMode(m int64) { c.modeBits.Store(int32(m)) }

// setUrgentAt sets how many pending units make a report urgent: at least 1. Above
// four thousand million, a report too many does not matter.
func (c *Counter) setUrgentAt(n int64) { c.urgentAt = uint32(min(max(n, 1), math.MaxUint32)) }

// win returns the window of a counter of windows, else nil. It unfolds it.
func (c *Counter) win() *window {
	switch c.more {
	case nil:
		return nil
	case &foldedAway:
		return c.unfold()
	}
	return c.more.window
}

// lodging returns the slot that c has lent to, or nil.
func (c *Counter) lodging() *slot {
	if d := c.slot.Load(); d != nil {
		return d.slot
	}
	return nil
}

// lentTo returns the pocket that c has lent to, or nil.
func (c *Counter) lentTo() *pocket {
	if c.more == nil {
		return nil
	}
	return c.more.pocket
}

func (c *Counter) slog() *slidingLog {
	if c.more == nil {
		return nil
	}
	return c.more.log
}

func (c *Counter) heir() *Counter {
	if c.more == nil {
		return nil
	}
	return c.more.heir
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

// setHeard matters only to who knows of a generation.
func (c *Counter) setHeard(t int64) {
	if c.hasStory() {
		c.tell().heard = t
	}
}

// setWitness keeps c from being forgotten until some time.
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

// setApart notes how far the clocks are apart. Less than leastApart is as good as
// nothing, see followClockLocked: two readings are never taken at once.
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
