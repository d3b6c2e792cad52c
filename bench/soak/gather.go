package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/bench/internal/rig"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/remote"
)

// gatherer collects for the oracle what is known of each slot, once nothing more
// can come to be known of it: calls of Redis are over by then.
type gatherer struct {
	run    *run
	oracle *oracle
	cols   []colFacts // per place and process, as in the oracle
	places []placeFacts
	stall  recent // of all: they share a machine
	events []event

	mu       sync.Mutex // protects what follows
	worst    finding
	readings []reading
}

// verdictAfter is how long after a slot it is judged.
const verdictAfter = 1500 * time.Millisecond

// colFacts is what is known of a process beyond the current slot.
type colFacts struct {
	alive bool
	last  lap
	laps  []lap
}

// placeFacts is the calls of a place.
type placeFacts struct {
	slow  recent    // exchanges that went well, how long
	wrong [ring]int // in which slots exchanges failed: holds the slot's number
}

// recent is the largest of a duration per slot.
type recent struct {
	at  [ring]int
	max [ring]time.Duration
}

func (r *recent) note(s int, d time.Duration) {
	if s < 1 {
		return
	}
	if r.at[s%ring] != s {
		r.at[s%ring], r.max[s%ring] = s, 0
	}
	r.max[s%ring] = max(r.max[s%ring], d)
}

// lately is over how many slots a duration is taken to be typical.
const lately = 50

// over returns the largest of late.
func (r *recent) over(s int) (top time.Duration) {
	for i := max(s-lately, 1); i <= s; i++ {
		if r.at[i%ring] == i {
			top = max(top, r.max[i%ring])
		}
	}
	return top
}

func newGatherer(r *run) *gatherer {
	b := &gatherer{run: r, cols: make([]colFacts, 2*r.config.nodes), places: make([]placeFacts, r.config.nodes)}
	b.oracle = newOracle(r.traffic.rules(), r.config.nodes, r.breach)
	return b
}

// follow judges until ctx ends.
func (b *gatherer) follow(ctx context.Context) {
	for pause(ctx, 250*ms) {
		b.advance(b.run.slotOf(rig.Now() - verdictAfter))
	}
}

// finish judges what is left once nobody is asked any more.
func (b *gatherer) finish() {
	if pause(context.Background(), verdictAfter) {
		b.advance(b.run.slotOf(rig.Now()))
	}
}

// expect has a reading be compared when its time is judged.
func (b *gatherer) expect(rd reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readings = append(b.readings, rd)
}

// verify compares the readings whose time has come.
func (b *gatherer) verify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.readings) > 0 && b.readings[0].to < b.oracle.now {
		b.oracle.verify(b.readings[0])
		b.readings = b.readings[1:]
	}
}

// advance judges all slots before one.
func (b *gatherer) advance(to int) {
	b.gather()
	// Redis' clock is that of this machine. It may be set during a run.
	b.oracle.epoch = time.Now().UnixNano() - int64(rig.Now()-b.run.start) - int64(slot)
	for b.oracle.now+1 < to {
		b.oracle.step(b.turn(b.oracle.now + 1))
		b.verify()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.oracle.worst.tops(b.worst) {
		b.worst = b.oracle.worst
	}
	b.oracle.worst = finding{}
}

// takeWorst returns the fullest window since it was last called.
func (b *gatherer) takeWorst() finding {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.worst
	b.worst = finding{}
	return w
}

// gather collects what the nodes have written down.
func (b *gatherer) gather() {
	r := b.run
	for _, n := range r.nodes {
		n.mu.Lock()
		laps, stalls := n.laps, n.stalls
		n.laps, n.stalls = nil, nil
		n.mu.Unlock()
		for _, l := range laps {
			c := &b.cols[columnOf(n.place, l.process)]
			c.laps = append(c.laps, l)
		}
		for _, st := range stalls {
			b.stall.note(st.at, st.late)
		}
	}
	for _, err := range b.takeNotes() {
		r.breach("an exchange failed although nothing was wrong: %v", err)
	}
}

// takeNotes collects events and calls, and returns why calls failed that had no
// reason to.
func (b *gatherer) takeNotes() (unexplained []error) {
	r := b.run
	r.mu.Lock()
	defer r.mu.Unlock()
	b.events = append(b.events, r.events...)
	r.events = nil
	for _, n := range r.nodes {
		for _, x := range n.calls {
			if !b.noteCall(n.place, x) {
				unexplained = append(unexplained, fmt.Errorf("node %d: %w", n.place, x.Err))
			}
		}
		n.calls = nil
	}
	r.forgetFaults()
	return unexplained
}

// noteCall takes in an exchange that failed or was slow, and tells whether
// that can be explained. r.mu is held.
func (b *gatherer) noteCall(place int, x rig.Exchange) bool {
	r, p := b.run, &b.places[place]
	from, to := r.slotOf(x.From), r.slotOf(x.To)
	if !x.Failed() {
		for s := from; s <= to; s++ {
			p.slow.note(s, x.To-x.From)
		}
		return true
	}
	// Its batch is sent again after a moment.
	for s := from; s <= to+inSlots(callGrace); s++ {
		p.wrong[s%ring] = s
	}
	for _, f := range r.faults {
		if f.cause && f.concerns(place) && f.from <= x.To && (f.to == forever || x.From <= f.to+after) {
			return true
		}
	}
	if _, why := remote.Classify(x.Err); why != "timeout" {
		return false
	}
	// This machine was too busy elsewhere.
	r.noise++
	r.explained += 4
	return true
}

// forgetFaults drops what no slot that is still to be judged can need. r.mu is
// held.
func (r *run) forgetFaults() {
	kept := r.faults[:0]
	for _, f := range r.faults {
		if f.to == forever || rig.Now()-f.to < 2*verdictAfter+quarantine+after+closeTimeout {
			kept = append(kept, f)
		}
	}
	clear(r.faults[len(kept):])
	r.faults = kept
}

// turn tells what happened in a slot.
func (b *gatherer) turn(s int) (t turn) {
	kept := b.events[:0]
	for _, e := range b.events {
		if e.slot > s {
			kept = append(kept, e)
			continue
		}
		switch e.kind {
		case born:
			t.born = append(t.born, e.on)
			b.cols[e.on].alive = true
		case died:
			t.crashed = append(t.crashed, e.on)
		case left:
			t.left = append(t.left, e.on)
		case lost:
			t.losses = append(t.losses, e.on)
		case pardoned:
			t.pardon = append(t.pardon, e.on)
		case crowded:
			t.crowd = true
		}
	}
	b.events = kept
	for j := range b.cols {
		if b.cols[j].alive {
			t.facts = append(t.facts, b.fact(j, s))
		}
	}
	for _, gone := range [][]int{t.crashed, t.left} {
		for _, j := range gone {
			b.cols[j] = colFacts{}
		}
	}
	b.faults(s, &t)
	return t
}

// fact returns what a process was asked in a slot. One that was kept from
// working at that time was asked nothing, and its mode is that of before.
func (b *gatherer) fact(j, s int) fact {
	c := &b.cols[j]
	items := len(b.run.traffic.items)
	if c.last.units == nil {
		c.last = lap{mode: hybrid.Resyncing, nodes: 1}
	}
	l := lap{mode: c.last.mode, nodes: c.last.nodes, losses: c.last.losses}
	for len(c.laps) > 0 && c.laps[0].slot <= s {
		next := c.laps[0]
		next.join(l)
		l, c.last, c.laps = next, next, c.laps[1:]
	}
	if l.units == nil {
		l.units, l.offered = make([]int32, items), make([]int32, items)
	}
	p := &b.places[j/2]
	age := interval + 2*p.slow.over(s) + b.stall.over(s)
	return fact{
		col: j, mode: l.mode, nodes: l.nodes, losses: l.losses, offered: l.offered, units: l.units,
		age: inSlots(age) + 1, cause: p.wrong[s%ring] == s,
	}
}

// join adds what was asked in an earlier slot that came too late.
func (l *lap) join(earlier lap) {
	for i := range earlier.units {
		l.units[i] += earlier.units[i]
		l.offered[i] += earlier.offered[i]
	}
}

// faults adds the faults of a slot.
func (b *gatherer) faults(s int, t *turn) {
	r := b.run
	from := r.start + time.Duration(s-1)*slot
	to := from + slot
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		if f.key != noKey && f.from < to && (f.to == forever || from < f.to+quarantine+5*interval) {
			t.ill = append(t.ill, f.key)
		}
		if !f.cause || f.from >= to || f.to < from {
			continue
		}
		for i := range t.facts {
			if x := &t.facts[i]; f.concerns(x.col / 2) {
				x.cause, x.complete = true, x.complete || f.sealed(from, to)
			}
		}
	}
}
