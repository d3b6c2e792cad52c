package main

import (
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
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

// The checks, for the report of how often each was active.
const (
	checkKnown   = "fleet: at most the limit of what a node must know"
	checkOutage  = "fleet: one limit of those who are cut off"
	checkStarved = "fleet: not starved while all is well"
	checkStored  = "redis: no less than was booked and still counts"
	checkMost    = "redis: no more than was admitted and still counts"
	checkSealed  = "node: degraded while cut off"
	checkWell    = "node: not degraded without a cause"
	checkSynced  = "node: synced again after the last fault"
	checkLoss    = "node: notices a loss"
	checkCrowd   = "node: knows how many there are"
)

var checks = []string{
	checkKnown, checkOutage, checkStarved, checkStored, checkMost, checkSealed, checkWell, checkSynced, checkLoss, checkCrowd,
}

// judge looks at every key of which something was admitted in this slot.
func (f *fleet) judge(facts []fact) {
	for k := range f.keys {
		// Whoever admits must know of no more than the limit. Of several
		// the one that must know most sets the bound.
		most, found, apart := 0.0, false, false
		for i := range facts {
			units, cut := facts[i].admitted(k)
			apart = apart || cut
			if !units || !f.procs[facts[i].place].alive {
				continue
			}
			if v, ok := f.known(k, facts[i].place); ok && v >= most {
				most, found = v, true
			}
		}
		if found {
			f.judgeBound(k, most)
		}
		if apart {
			f.judgeOutage(k)
		}
		f.judgeStarved(k)
	}
}

// admitted reports whether the process that a place has now has admitted something of a
// key for certain, and whether one has while it was cut off.
func (x *fact) admitted(k int) (units, apart bool) {
	for i := range x.laps {
		l := &x.laps[i]
		if l.kind != ran {
			units = false
			continue
		}
		units = units || l.items[k].units+l.items[k].apart > 0
		apart = apart || l.items[k].apart > 0
	}
	return units, apart
}

func (f *fleet) judgeBound(k int, known float64) {
	b := &f.keys[k]
	w := finding{key: k, admitted: f.admitted(k), limit: b.limit}
	// What the node need not know may be admitted on top.
	w.bound = b.limit + max(w.admitted-known, 0)
	if w.tops(f.worst) {
		f.worst = w
	}
	f.steps[checkKnown]++
	if known > b.limit+0.5 {
		f.breach("%v: %.0f units admitted, at most %.0f are allowed (%.0f that whoever admitted the last one must have known of, and a limit of %.0f)",
			b.rule, w.admitted, w.bound, known, b.limit)
	}
}

// judgeOutage checks what nodes admit that are cut off: with what all know of, no more
// than their shares, or one limit if those are less. That holds as long as none of them
// can have heard of Redis since: it may then have another share of what is left.
func (f *fleet) judgeOutage(k int) {
	b := &f.keys[k]
	is, ok := f.period(&b.spec)
	since, wide := is.From, 0.0
	switch {
	case b.endless:
		return // it holds what was admitted in all outages
	case b.leak > 0:
		since, wide = b.Emptied()-1, b.leaked(f.skew()/2+int64(dated))
	case !b.fixed:
		is.From += int64(arith.Of(b.rule).Width)
		since = is.From
	}
	for len(b.cut) > 0 && b.cut[0].at <= since {
		b.cut = b.cut[1:]
	}
	if !ok || b.Losing() || b.mended > 0 && since < when(b.mended) {
		return
	}
	share, most := map[[2]int]float64{}, 0.0
	for _, c := range b.cut {
		if p := &f.procs[c.place]; c.sealed == 0 || p.number == c.process && p.sealed != c.sealed {
			return
		}
		id := [2]int{c.place, c.process}
		most += max(c.share-share[id], 0)
		share[id] = max(share[id], c.share)
	}
	if most > b.limit && b.leak > 0 {
		return // several whole funnels leak several times as fast as the one that is added up
	}
	f.steps[checkOutage]++
	if got := b.Outage(is) - wide; got > max(most, b.limit)+0.5 {
		f.breach("%v: %.0f units admitted that all nodes know of, or that were admitted by nodes that were cut off; at most %.0f are the shares of %d",
			b.rule, got, max(most, b.limit), len(share))
	}
}

// leastPercent is how much of a limit must at least be admitted when nothing
// is wrong and more is asked for: who refuses everything keeps every bound.
const leastPercent = 40

func (f *fleet) judgeStarved(k int) {
	b := &f.keys[k]
	if b.endless || f.now%8 != 0 && !b.fixed {
		return
	}
	// Two windows: what was admitted at once also ends at once, and a limiter
	// that counts in buckets may be a bucket late to notice.
	from, wide, want := f.now-2*b.window, 0, 2*b.limit
	if b.fixed {
		end := f.fixedSince(&b.spec, when(f.now)) + int64(b.rule.Period())
		if at := end - f.skew(); when(f.now) > at || when(f.now+1) <= at {
			return // look near the end of each window
		}
		// All may have come right at its beginning.
		from, wide, want = f.now-b.window+inSlots(time.Duration(f.skew())), 2*inSlots(time.Duration(f.skew())), b.limit
	}
	if b.leak > 0 {
		want = b.leaked(when(f.now - from))
	}
	// What an outage has admitted too much is still to be repaid. A funnel may
	// have been filled by more than its limit.
	settled := f.now - from + b.window + inSlots(2*time.Second)
	if from <= wide || b.Losing() || f.now-b.mended < settled || !f.allCalm(settled) || f.now-f.crowd < settled {
		return
	}
	if !f.crowded(k, from, 1.5*want/float64(len(f.procs))) {
		return
	}
	f.steps[checkStarved]++
	if n := float64(b.units.at(f.now) - b.units.at(from-wide)); n < want*leastPercent/100 {
		f.breach("%v: only %.0f units admitted of %.0f although nothing was wrong and more was asked for", b.rule, n, want)
	}
}

// crowded reports whether each node was asked for so many units since a slot, and
// for its share of them in each quarter of that time.
func (f *fleet) crowded(k, from int, units float64) bool {
	const quarters = 4
	for place := range f.procs {
		h := &f.offered[place][k]
		for q := range quarters {
			a, b := from+(f.now-from)*q/quarters, from+(f.now-from)*(q+1)/quarters
			if float64(h.at(b)-h.at(a)) < units/quarters {
				return false
			}
		}
	}
	return true
}

// judgeMode looks at what a node says of itself.
func (f *fleet) judgeMode(place int, l *lap, cause bool) {
	p := &f.procs[place]
	since := f.now - p.cause
	f.steps[checkWell]++
	if since > capSlots {
		f.steps[checkSynced]++
	}
	switch {
	case l.mode == hybrid.Synced:
		p.late = false
	case l.mode == hybrid.Degraded && p.mode == hybrid.Synced && !cause && since > inSlots(time.Second):
		f.breach("node %d is degraded although nothing was wrong for %v", place, (time.Duration(since) * slot).Round(time.Second))
	case since > capSlots && !cause && !p.late:
		p.late = true
		f.breach("node %d is still %v %v after the last fault", place, l.mode, (time.Duration(since) * slot).Round(time.Second))
	}
	p.mode = l.mode
	if l.losses > p.losses {
		p.expect = false
		if !f.whole && f.now > p.pardoned {
			f.breach("node %d has noticed %d losses of data where there was none", place, l.losses-p.losses)
		}
	}
	p.losses = l.losses
}

// judgeSealed checks that a node that has no way to Redis notices that. Each step on the
// way may be as late as a timer.
func (f *fleet) judgeSealed(place int) {
	p := &f.procs[place]
	if p.sealed == 0 || f.now-max(p.sealed, p.born) <= noticeSlots+inSlots(4*f.stall) {
		return
	}
	f.steps[checkSealed]++
	if p.mode == hybrid.Synced {
		f.breach("node %d says that it is synced %v after its last way to Redis has gone", place, (time.Duration(f.now-p.sealed) * slot).Round(time.Second))
		p.sealed = f.now // say it once
	}
}

// judgeLosses checks that a loss of all data was noticed.
func (f *fleet) judgeLosses() {
	for i := range f.procs {
		p := &f.procs[i]
		if p.alive && p.expect {
			f.breach("node %d has not noticed that Redis lost its data", i)
		}
		if p.alive {
			f.steps[checkLoss]++
		}
		p.expect = false
		// A flight of before the loss may tell of it late.
		p.pardoned = max(p.pardoned, f.now+capSlots)
	}
}

// judgeCrowd checks that the nodes know how many they are when nothing is, or
// lately was, wrong.
func (f *fleet) judgeCrowd() {
	if f.now-f.crowd < crowdSlots || !f.allCalm(crowdSlots) {
		return
	}
	f.steps[checkCrowd]++
	for i := range f.procs {
		if p := &f.procs[i]; p.alive && p.nodes != len(f.procs) {
			f.breach("node %d counts %d nodes where there are %d", i, p.nodes, len(f.procs))
			f.crowd = f.now // say it once
		}
	}
}
