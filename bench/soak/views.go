package main

import (
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// How the rules count what a node must know. Each count is a lower bound of
// what a limiter that keeps its promises counts: where buckets begin is its own
// business, and its idea of Redis' time may be marginSlots off.

// endlessFrom is the period from which a rule is taken to forget nothing
// during a run: such keys are quotas.
const endlessFrom = 30 * 24 * time.Hour

// spec is a rule in slots.
type spec struct {
	rule    *limit.Rule
	limit   float64
	window  int // the longest that is looked back; 0: since the start
	width   int // of a bucket
	leak    float64
	fixed   bool
	endless bool
}

func newSpec(r *limit.Rule) spec {
	p := spec{rule: r, limit: float64(r.Limit()), window: inSlots(r.Period()), width: inSlots(r.Width()), fixed: r.Algorithm() == limit.AlgorithmFixedWindow}
	drain := r.Period()
	if r.Algorithm() == limit.AlgorithmFunnel {
		p.leak = float64(r.Units()) * float64(slot) / float64(r.Period())
		drain = time.Duration(float64(r.Limit()) / float64(r.Units()) * float64(r.Period()))
		p.window = max(inSlots(drain), inSlots(3*time.Second))
	}
	if p.endless = drain >= endlessFrom; p.endless {
		p.window = 0
	}
	return p
}

// known returns what column i must know of what j has admitted after slot a and
// up to b. If a is negative: since the start.
func (o *oracle) known(k, i, j, a, b int) float64 {
	l := &o.cols[j].keys[k]
	if i == j {
		return float64(l.units.at(b) - l.units.at(a))
	}
	h := min(b, o.horizon(k, i, j))
	if h <= a || h <= o.oldest() {
		return 0
	}
	return float64(l.units.at(h) - l.lost.at(h) - l.units.at(a) + l.lost.at(a))
}

// count returns what column i must count after slot a and up to b: what it
// knows, and once more for each other node what it has admitted on its own.
func (o *oracle) count(k, i, a, b int) (sum float64) {
	for j := range o.cols {
		sum += o.known(k, i, j, a, b)
	}
	c := &o.cols[i]
	if alone := c.cutOff + noticeSlots; c.cutOff > 0 && alone < b {
		l := &c.keys[k]
		sum += float64(c.nodes-1) * float64(l.units.at(b)-l.units.at(max(a, alone)))
	}
	return sum
}

// view returns what column i must count now. ok is false when it is not known
// which window a check was decided in.
func (o *oracle) view(k, i int) (units float64, ok bool) {
	switch p := &o.rules[k]; {
	case p.endless:
		units = o.count(k, i, -1, o.now)
		if g := o.gone[k]; o.cols[i].keys[k].view > o.oldest() {
			units += float64(g.units - g.lost)
		}
		return units, true
	case p.leak > 0:
		return o.level(k, i, p), true
	case p.fixed:
		from, to := o.fixedWindow(p, o.now)
		return o.count(k, i, from, o.now), from < o.now && o.now < to
	default:
		return o.sliding(k, i, p), true
	}
}

// sliding returns the least that a sliding window may count, wherever its
// buckets begin: with d slots of the current one over, all that was admitted
// in it and the others, and of the oldest one the share of it that is left.
func (o *oracle) sliding(k, i int, p *spec) (least float64) {
	for d := range p.width {
		from := o.now - p.window + p.width - d + marginSlots
		left := float64(p.width-d) / float64(p.width)
		units := o.count(k, i, max(from-p.width, -1), min(from, o.now)) * left
		if from < o.now {
			units += o.count(k, i, max(from, -1), o.now)
		}
		if d == 0 || units < least {
			least = units
		}
	}
	return least
}

// fixedWindow returns from and to which slot the window that holds a slot
// surely extends.
func (o *oracle) fixedWindow(p *spec, s int) (from, to int) {
	period := int64(p.rule.Period())
	at := o.epoch + int64(s)*int64(slot)
	begin := int((at - at%period - o.epoch) / int64(slot))
	return max(begin+marginSlots/2, -1), begin + p.window - marginSlots/2 - 1
}

// level returns what a funnel must hold: the most, over all times at which it
// may have been empty, of what came since, less what has leaked. Looking at
// some of these times gives a lower bound.
func (o *oracle) level(k, i int, p *spec) (most float64) {
	const stride = 5
	spilt := p.leak * float64(marginSlots)
	for a := o.now - 1; a >= o.now-p.window && a >= -1; a -= stride {
		most = max(most, o.count(k, i, a, o.now)-p.leak*float64(o.now-a)-spilt)
	}
	return most
}

// total returns what all nodes have admitted after slot a.
func (o *oracle) total(k, a int) (sum int64) {
	for j := range o.cols {
		l := &o.cols[j].keys[k]
		sum += l.units.at(o.now) - l.units.at(a)
	}
	if o.rules[k].endless {
		sum += o.gone[k].units
	}
	return sum
}

// admitted returns what a person would count of a key now: the units of its
// window, or what its funnel would hold.
func (o *oracle) admitted(k int) float64 {
	switch p := &o.rules[k]; {
	case p.endless:
		return float64(o.total(k, -1))
	case p.leak > 0:
		most := 0.0
		for a := o.now - 1; a >= o.now-p.window && a >= -1; a-- {
			most = max(most, float64(o.total(k, a))-p.leak*float64(o.now-a))
		}
		return most
	case p.fixed:
		from, _ := o.fixedWindow(p, o.now)
		return float64(o.total(k, min(from, o.now)))
	default:
		return float64(o.total(k, max(o.now-p.window, -1)))
	}
}
