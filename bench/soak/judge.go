package main

import (
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// finding is the window that was the fullest, measured by what it could hold.
type finding struct {
	key                    int
	admitted, bound, limit float64
}

// tops tells whether f came closer to its bound than g; of two that came as
// close, whether it was further above the limit.
func (f finding) tops(g finding) bool {
	a, b := f.admitted*g.bound, g.admitted*f.bound
	return a > b || a == b && f.admitted*g.limit > g.admitted*f.limit || g.bound == 0
}

// judge looks at every key of which something was admitted in this slot.
func (o *oracle) judge() {
	for k := range o.rules {
		p := &o.rules[k]
		// Whoever admits must know of no more than the limit. Of several
		// the one that must know most sets the bound.
		most, found := 0.0, false
		for j := range o.cols {
			c := &o.cols[j]
			if !c.alive || c.keys[k].units.at(o.now) == c.keys[k].units.at(o.now-1) {
				continue
			}
			if v, ok := o.view(k, j); ok && v >= most {
				most, found = v, true
			}
		}
		if found {
			o.judgeBound(k, most)
		}
		o.judgeStarved(k, p)
	}
}

func (o *oracle) judgeBound(k int, view float64) {
	p := &o.rules[k]
	f := finding{key: k, admitted: o.admitted(k), limit: p.limit}
	// What the node need not know may be admitted on top.
	f.bound = p.limit + max(f.admitted-view, 0)
	if f.tops(o.worst) {
		o.worst = f
	}
	if view > p.limit+0.5 {
		o.breach("%v: %.0f units admitted, at most %.0f are allowed (%.0f that whoever admitted the last one must have known of, and a limit of %.0f)",
			p.rule, f.admitted, f.bound, view, p.limit)
	}
}

// leastPercent is how much of a limit must at least be admitted when nothing
// is wrong and more is asked for: who refuses everything keeps every bound.
const leastPercent = 40

func (o *oracle) judgeStarved(k int, p *spec) {
	if p.endless || o.now%8 != 0 && !p.fixed {
		return
	}
	// Two windows: what was admitted at once also ends at once, and a limiter
	// that counts in buckets may be a bucket late to notice.
	from, wide, want := o.now-2*p.window, 0, 2*p.limit
	if p.fixed {
		begin, to := o.fixedWindow(p, o.now)
		if o.now != to {
			return // look at the end of each window
		}
		from, wide, want = begin, marginSlots, p.limit // all may have come right at its beginning
	}
	if p.leak > 0 {
		want = p.leak * float64(o.now-from)
	}
	// What an outage has admitted too much is still to be repaid. A funnel may
	// have been filled by more than its limit.
	settled := o.now - from + p.window + inSlots(2*time.Second)
	if h := &o.holes[k]; from <= wide || h.open || o.now-h.end < settled || !o.allCalm(settled) || o.now-o.crowd < settled {
		return
	}
	if !o.crowded(k, from, 1.5*want/float64(o.fleet)) {
		return
	}
	if n := float64(o.total(k, from-wide)); n < want*leastPercent/100 {
		o.breach("%v: only %.0f units admitted of %.0f although nothing was wrong and more was asked for", p.rule, n, want)
	}
}

// crowded tells whether each node was asked for so many units since a slot, and
// for its share of them in each quarter of that time.
func (o *oracle) crowded(k, from int, units float64) bool {
	const quarters = 4
	for j := range o.cols {
		if !o.cols[j].alive {
			continue
		}
		l := &o.cols[j].keys[k]
		for q := range quarters {
			a, b := from+(o.now-from)*q/quarters, from+(o.now-from)*(q+1)/quarters
			if float64(l.offered.at(b)-l.offered.at(a)) < units/quarters {
				return false
			}
		}
	}
	return true
}

// judgeMode looks at what a node says of itself.
func (o *oracle) judgeMode(c *column, f *fact) {
	since := o.now - c.cause
	switch {
	case f.mode == hybrid.Synced:
		c.late = false
	case f.mode == hybrid.Degraded && c.mode == hybrid.Synced && !f.cause && since > inSlots(time.Second):
		o.breach("a node is degraded although nothing was wrong for %v", (time.Duration(since) * slot).Round(time.Second))
	case since > capSlots && !f.cause && !c.late:
		c.late = true
		o.breach("a node is still %v %v after the last fault", f.mode, (time.Duration(since) * slot).Round(time.Second))
	}
	c.mode = f.mode
	if f.losses > c.losses {
		c.expect = false
		if !o.whole && o.now > c.pardoned {
			o.breach("a node has noticed %d losses of data where there was none", f.losses-c.losses)
		}
	}
	c.losses = f.losses
}

// judgeLosses checks that a loss of all data was noticed.
func (o *oracle) judgeLosses() {
	for j := range o.cols {
		c := &o.cols[j]
		if c.alive && c.expect {
			o.breach("a node has not noticed that Redis lost its data")
		}
		c.expect = false
		// A flight of before the loss may tell of it late.
		c.pardoned = max(c.pardoned, o.now+capSlots)
	}
}

// judgeCrowd checks that the nodes know how many they are when nothing is, or
// lately was, wrong.
func (o *oracle) judgeCrowd() {
	if o.now-o.crowd < crowdSlots || !o.allCalm(crowdSlots) {
		return
	}
	for j := range o.cols {
		if c := &o.cols[j]; c.alive && c.nodes != int64(o.fleet) {
			o.breach("a node counts %d nodes where there are %d", c.nodes, o.fleet)
			o.crowd = o.now // say it once
		}
	}
}
