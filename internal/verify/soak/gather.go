package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// gatherer collects for the oracle what is known of each slot, once nothing more
// can come to be known of it: calls of Redis are over by then.
type gatherer struct {
	run        *run
	fleet      *fleet
	places     []placeFacts
	stall      recent // of all: they share a machine
	rebookings []rebooking

	kept atomic.Int64 // laps that are not judged yet

	mu       sync.Mutex // protects what follows
	worst    finding
	readings []reading
}

// verdictAfter is how long after a slot it is judged at the earliest: the faults of a
// slot are written down before they begin, so this is only to judge several at once.
const verdictAfter = 500 * time.Millisecond

// placeFacts is what is known of a place beyond the current slot.
type placeFacts struct {
	laps  []lap
	slow  recent    // exchanges that went well, how long
	wrong [ring]int // in which slots exchanges failed: holds the slot's number
}

// recent is the largest of a duration per slot.
type recent struct {
	at  [ring]int
	max [ring]time.Duration
}

// note notes a duration of something that lasted from one slot to another.
func (r *recent) note(from, to int, d time.Duration) {
	for s := max(from, to-ring+1, 1); s <= to; s++ {
		if r.at[s%ring] != s {
			r.at[s%ring], r.max[s%ring] = s, 0
		}
		r.max[s%ring] = max(r.max[s%ring], d)
	}
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
	b := &gatherer{run: r, places: make([]placeFacts, r.config.nodes)}
	b.fleet = newFleet(r.traffic.rules(), r.config.nodes, r.breach)
	return b
}

// follow judges until ctx ends.
func (b *gatherer) follow(ctx context.Context) {
	for rig.Pause(ctx, 250*ms) {
		b.advance(rig.Now() - verdictAfter)
	}
}

// finish judges what is left once nobody is asked any more.
func (b *gatherer) finish() {
	for until := rig.Now(); ; {
		b.advance(rig.Now())
		if b.fleet.now >= b.run.slotOf(until) && b.verify() || !rig.Pause(context.Background(), 20*ms) {
			return
		}
	}
}

// expect has a reading be compared when its time is judged.
func (b *gatherer) expect(rd reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readings = append(b.readings, rd)
}

// foresee has what must be counted be noted for the readings that begin with a slot.
func (b *gatherer) foresee(s int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.readings {
		if rd := &b.readings[i]; rd.from <= s {
			b.fleet.foresee(rd)
		}
	}
}

// verify compares the readings whose time has come, and reports whether none is left.
func (b *gatherer) verify() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.readings) > 0 && b.readings[0].to < b.fleet.now && b.readings[0].least != nil {
		b.fleet.verify(&b.readings[0])
		b.readings = b.readings[1:]
	}
	return len(b.readings) == 0
}

// advance judges all slots that were over by a time, of which nothing more can come to be
// known: an exchange that is under way may be going to fail, and who asks and
// is late now may be late for longer.
func (b *gatherer) advance(by time.Duration) {
	r := b.run
	by = min(by, r.underway()) // first: what ends from here on may not be among what is gathered
	by = min(by, b.gather())
	r.readEpoch(&b.fleet.epoch)
	for b.fleet.now+1 < r.slotOf(by) {
		b.foresee(b.fleet.now + 1)
		b.fleet.step(b.turn(b.fleet.now + 1))
		b.verify()
	}
	kept := 0
	for i := range b.places {
		kept += len(b.places[i].laps)
	}
	b.kept.Store(int64(kept))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fleet.worst.tops(b.worst) {
		b.worst = b.fleet.worst
	}
	b.fleet.worst = finding{}
}

// readEpoch reads what Redis' clock, which is that of this machine, showed when the run
// began: as exactly as can be, since whoever reads two clocks may be interrupted. The
// clock may be set during a run.
func (r *run) readEpoch(epoch *int64) {
	least := time.Hour
	for range 5 {
		before, wall := rig.Now(), time.Now().UnixNano()
		if d := rig.Now() - before; d < least {
			least, *epoch = d, wall-int64(before+d/2-r.start)
		}
	}
}

// takeWorst returns the fullest window since it was last called.
func (b *gatherer) takeWorst() finding {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.worst
	b.worst = finding{}
	return w
}

// gather collects what the nodes have written down, and returns until when all who ask
// have been on time, or were known to be late.
func (b *gatherer) gather() (ticked time.Duration) {
	r := b.run
	ticked = rig.Now()
	for _, n := range r.nodes {
		n.mu.Lock()
		n.turnLap(r.slotOf(rig.Now()))
		laps, stalls := n.laps, n.stalls
		n.laps, n.stalls = nil, nil
		ticked = min(ticked, n.ticked)
		n.mu.Unlock()
		b.places[n.place].laps = append(b.places[n.place].laps, laps...)
		for _, st := range stalls {
			b.stall.note(st.from, st.to, st.late)
		}
	}
	for _, err := range b.takeNotes() {
		r.breach("an exchange failed although nothing was wrong: %v", err)
	}
	return ticked
}

// takeNotes collects rebookings and calls, and returns why calls failed that had no
// reason to.
func (b *gatherer) takeNotes() (unexplained []error) {
	r := b.run
	r.mu.Lock()
	defer r.mu.Unlock()
	b.rebookings = append(b.rebookings, r.rebookings...)
	r.rebookings = nil
	for _, n := range r.nodes {
		for _, x := range n.calls {
			if !b.noteCall(n.place, x) {
				unexplained = append(unexplained, fmt.Errorf("node %d: %w", n.place, x.Err))
			}
		}
		n.calls = nil
	}
	r.forgetFaults(min(rig.Now(), r.start+time.Duration(b.fleet.now)*slot))
	return unexplained
}

// noteCall takes in an exchange that failed or was slow, and tells whether
// that can be explained. r.mu is held.
func (b *gatherer) noteCall(place int, x rig.Exchange) bool {
	r, p := b.run, &b.places[place]
	from, to := r.slotOf(x.From), r.slotOf(x.To)
	if !x.Failed() {
		p.slow.note(from, to, x.To-x.From)
		return true
	}
	// Its batch is sent again after a moment.
	for s := from; s <= to+inSlots(grace); s++ {
		p.wrong[s%ring] = s
	}
	for _, f := range r.faults {
		if f.cause && f.concerns(place) && f.from <= x.To && (f.to == forever || x.From <= f.to+after) {
			return true
		}
	}
	if _, why := redisstore.Classify(x.Err); why != "timeout" {
		return false
	}
	// This machine was too busy elsewhere.
	r.noise++
	r.explained += 4
	return true
}

// forgetFaults drops what no slot that is still to be judged can need: all have been up to
// a time. A busy machine may judge late. r.mu is held.
func (r *run) forgetFaults(judged time.Duration) {
	kept := r.faults[:0]
	for _, f := range r.faults {
		if f.to == forever || judged-f.to < 2*verdictAfter+quarantine+after+closeTimeout {
			kept = append(kept, f)
		}
	}
	clear(r.faults[len(kept):])
	r.faults = kept
}

// turn tells what happened in a slot.
func (b *gatherer) turn(s int) (t turn) {
	kept := b.rebookings[:0]
	for _, x := range b.rebookings {
		if x.slot > s {
			kept = append(kept, x)
			continue
		}
		t.twice = append(t.twice, x.units)
	}
	b.rebookings = kept
	t.stall = b.stall.over(s)
	age := 0
	for place := range b.places {
		x := b.fact(place, s, t.stall)
		t.facts, age = append(t.facts, x), max(age, x.age)
	}
	b.run.age.Store(int64(age))
	b.faults(s, &t)
	return t
}

// fact returns what a place was asked in a slot. A limiter does not wait for an exchange for
// longer than its timeout: one that takes nearly as long, with what may be late
// around it, counts as one that has failed.
func (b *gatherer) fact(place, s int, stall time.Duration) fact {
	p := &b.places[place]
	n := 0
	for n < len(p.laps) && p.laps[n].slot <= s {
		n++
	}
	x := fact{place: place, laps: p.laps[:n:n]}
	p.laps = p.laps[n:]
	slow := p.slow.over(s)
	x.age = inSlots(lag+interval+2*slow+3*stall) + 1
	x.cause = p.wrong[s%ring] == s || slow+3*stall >= commandTimeout
	return x
}

// faults adds the faults of a slot.
func (b *gatherer) faults(s int, t *turn) {
	r := b.run
	from := r.start + time.Duration(s-1)*slot
	to := from + slot
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		if f.key != noKey && f.from < to && (f.to == forever || from < f.to+quarantine+lag+2*interval) {
			t.ill = append(t.ill, f.key)
		}
		if !f.during(from, to) {
			continue
		}
		switch f.kind {
		case lost:
			t.losses = append(t.losses, f.on)
		case pardoned:
			t.pardon = append(t.pardon, f.on)
		case crowded:
			t.crowd = true
		}
		if !f.cause {
			continue
		}
		for i := range t.facts {
			if x := &t.facts[i]; f.concerns(x.place) {
				x.cause, x.sealed = true, x.sealed || f.sealed(from, to)
			}
		}
	}
}
