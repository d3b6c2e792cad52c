package main

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/bench/internal/rig"
)

// reading is what Redis counted of each item at a time.
type reading struct {
	from, to int // the slots in which it was taken
	final    bool
	counts   []count
}

// count is what Redis counts of an item, in buckets from a time on.
type count struct {
	units   float64
	since   int64 // Redis' time, ns; 0: ever
	skipped int64 // admitted so far, but it is not certain when
	err     error
}

// read asks Redis what it counts of each item. final says that nothing is
// pending. world.mu is held, or nobody else is there.
func (r *run) read(final bool) reading {
	rd := reading{from: r.slotOf(rig.Now()), final: final, counts: make([]count, len(r.traffic.items))}
	for k, it := range r.traffic.items {
		c := &rd.counts[k]
		rule := &r.judge.oracle.rules[k]
		for again := true; again; {
			c.since = rule.since(time.Now())
			c.units, c.err = r.world.stored(it, c.since)
			// Redis does not have the first bucket any more if the window has gone on meanwhile.
			again = c.err == nil && c.since != rule.since(time.Now())
		}
	}
	for _, n := range r.nodes {
		n.mu.Lock()
		for k, units := range n.skipped {
			rd.counts[k].skipped += units
		}
		n.mu.Unlock()
	}
	rd.to = r.slotOf(rig.Now())
	return rd
}

// since returns when the window began, in Redis' time, that ends now: that of its first
// bucket. A fixed window is one bucket; 0: ever.
func (p *spec) since(now time.Time) int64 {
	if p.endless || p.leak > 0 {
		return 0
	}
	width := int64(p.rule.Width())
	back := int64(p.rule.Period()) - width
	return (now.UnixNano() - back) / width * width
}

// verify compares a reading with what was admitted by now, when it is over.
// Redis never counts a unit twice, nor in a newer window than its own. And it
// counts what the nodes must have told it, less what may be lost.
func (o *oracle) verify(rd reading) {
	for k, c := range rd.counts {
		p := &o.rules[k]
		if p.leak > 0 && !p.endless {
			continue // it leaks while one looks
		}
		by := rd.from - 1
		if rd.final {
			by = forAll
		}
		least, most := o.between(k, c.since, by)
		most += float64(c.skipped)
		if p.leak > 0 {
			least -= 1 + p.leak*float64(o.now)
			most++
		}
		unsure := o.holes[k].open || o.holes[k].end >= rd.from
		switch {
		case c.err != nil && unsure:
		case c.err != nil:
			o.breach("%v: Redis was asked what it counts: %v", p.rule, c.err)
		case c.units < least && !unsure:
			o.breach("%v: Redis counts %.1f units, it must have been told of %.0f", p.rule, c.units, least)
		case c.units > most:
			o.breach("%v: Redis counts %.1f units, only %.0f were admitted", p.rule, c.units, most)
		default:
			o.agreed++
		}
	}
}

// forAll stands for the slot by which everybody has told everything.
const forAll = math.MaxInt / 2

// between returns how many units Redis must at least count by a slot, and may at
// most count by now, of a window or quota from a time on (Redis', ns; 0: ever).
func (o *oracle) between(k int, since int64, by int) (least, most float64) {
	late, early := 0, 0
	if since > 0 {
		at := int((since - o.epoch) / int64(slot))
		late, early = max(at+marginSlots, 0), max(at-marginSlots, 0)
	} else {
		least, most = float64(o.gone[k].units-o.gone[k].lost), float64(o.gone[k].units)
	}
	for j := range o.cols {
		l := &o.cols[j].keys[k]
		most += float64(l.units.at(o.now) - l.units.at(early))
		told := o.now
		if by != forAll {
			told = int(o.cols[j].booked.at(by))
		}
		if told > late && told > o.oldest() {
			least += float64(l.units.at(told) - l.lost.at(told) - l.units.at(late) + l.lost.at(late))
		}
	}
	return least, most
}
