package main

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// reading is what Redis counted of each item at a time.
type reading struct {
	from, to int // the slots in which it was taken
	final    bool
	counts   []count
	least    []float64 // what must be counted; nil: not looked at yet
}

// count is what Redis counts of an item, in buckets from a time on.
type count struct {
	units float64
	since int64 // Redis' time, ns; 0: ever
	err   error
}

// read asks Redis what it counts of each item. final says that nothing is
// pending. world.mu is held, or nobody else is there.
func (r *run) read(final bool) reading {
	rd := reading{from: r.slotOf(rig.Now()), final: final, counts: make([]count, len(r.traffic.items))}
	for k, it := range r.traffic.items {
		c := &rd.counts[k]
		rule := r.judge.fleet.keys[k].spec
		for again := true; again; {
			c.since = rule.since(time.Now())
			c.units, c.err = r.world.stored(it, c.since)
			// Redis does not have the first bucket any more if the window has gone on meanwhile.
			again = c.err == nil && c.since != rule.since(time.Now())
		}
	}
	for _, n := range r.nodes {
		n.mu.Lock()
		//lint:ignore SA2001 a check under way has counted already, and is not yet written down
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
	width := int64(arith.Of(p.rule).Width)
	back := int64(p.rule.Period()) - width
	return (now.UnixNano() - back) / width * width
}

// foresee notes what Redis must count at least when a reading begins.
func (f *fleet) foresee(rd *reading) {
	if rd.least != nil {
		return
	}
	for k, c := range rd.counts {
		b := &f.keys[k]
		if rd.final {
			for place := range f.procs {
				f.bookAll(k, place)
			}
		}
		is := oracle.Period{From: math.MinInt64, At: when(max(rd.to, f.now))}
		if c.since > 0 {
			is.From = c.since - f.epoch + f.skew() + int64(dated)
		}
		least := b.Stored(is)
		switch {
		case !rd.final && f.now >= rd.from:
			least = 0 // it took long, and what must be counted now need not have been then
		case b.endless && b.leak > 0:
			least -= 1 + b.leaked(is.At)
		case b.leak > 0:
			// Redis' funnel is read in parts of a unit. Who reports tells when its units
			// came, and may misjudge Redis' clock by half of an exchange.
			least -= 1 + b.leaked(f.skew()/2+int64(dated))
		}
		rd.least = append(rd.least, least)
	}
}

// verify compares a reading with what was admitted by now, when it is over.
// Redis counts what the nodes must have told it, less what may be lost, and no unit
// in a newer window than its own, nor twice without a loss. What a leaking funnel may
// hold depends on when it was told: that is not known here.
func (f *fleet) verify(rd *reading) {
	for k, c := range rd.counts {
		b := &f.keys[k]
		unsure := b.Losing() || max(b.until, b.mended) >= rd.from
		if c.err != nil {
			if !unsure {
				f.breach("%v: Redis was asked what it counts: %v", b.rule, c.err)
			}
			continue
		}
		if !unsure {
			f.steps[checkStored]++
			if least := rd.least[k]; c.units < least {
				f.breach("%v: Redis counts %.1f units, it must have been told of %.1f", b.rule, c.units, least)
			}
		}
		if b.leak > 0 && !b.endless {
			continue
		}
		f.steps[checkMost]++
		if most := f.most(b, c.since, rd.to); c.units > most {
			f.breach("%v: Redis counts %.1f units, only %.0f were admitted", b.rule, c.units, most)
		}
	}
}

// most returns what Redis may count of units since a time.
func (f *fleet) most(b *key, since int64, to int) float64 {
	is := oracle.Period{From: math.MinInt64, At: when(to)}
	if since > 0 {
		is.From = since - f.epoch - f.skew()
		if width := int64(arith.Of(b.rule).Width); when(f.unsure) > is.From-width {
			is.From -= width
		}
	}
	most := b.Most(is)
	if b.leak > 0 {
		most++ // Redis' funnel is read in parts of a unit
	}
	return most
}
