package main

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/limit"
)

// endlessFrom is the period from which a rule is taken to forget nothing
// during a run: such keys are quotas.
const endlessFrom = 30 * 24 * time.Hour

// spec is a rule, in slots and in ns.
type spec struct {
	rule    *limit.Rule
	limit   float64
	window  int     // the longest that is looked back, in slots; 0: since the start
	leak    float64 // units per ns; 0: none
	fixed   bool
	endless bool
}

func newSpec(r *limit.Rule) spec {
	p := spec{rule: r, limit: float64(r.Limit()), window: inSlots(r.Period()), fixed: arith.Of(r).Algorithm == arith.FixedWindow}
	drain := r.Period()
	if arith.Of(r).Algorithm == arith.TokenBucket {
		p.leak = float64(arith.Of(r).Units) / float64(r.Period())
		drain = time.Duration(p.limit / p.leak)
		p.window = max(inSlots(drain), inSlots(3*time.Second))
	}
	if p.endless = drain >= endlessFrom; p.endless {
		p.window = 0
	}
	return p
}

// book returns what package oracle is to know of the rule. A quota does not end: a funnel
// that leaks a unit a day is one, too.
func (p *spec) book() oracle.Rule {
	switch {
	case p.endless:
		return oracle.Rule{Endless: true}
	case p.leak > 0:
		return oracle.Rule{Leak: p.leak}
	}
	return oracle.Rule{Window: int64(p.rule.Period()), Width: int64(arith.Of(p.rule).Width)}
}

// skew is by how much a unit that one node has booked may be off for another.
func (f *fleet) skew() int64 { return int64(commandTimeout + grace + f.stall) }

// period returns since when units surely count for whoever looks now, in full, but for what
// a bucket may lose early. ok is false when it is not known which window that is.
func (f *fleet) period(p *spec) (is oracle.Period, ok bool) {
	is = oracle.Period{From: math.MinInt64, At: when(f.now)}
	switch {
	case p.endless, p.leak > 0:
		return is, true
	case p.fixed:
		begin := f.fixedSince(p, is.At)
		half := f.skew() / 2
		is.From = begin + half + int64(dated)
		return is, is.At > is.From+int64(dated) && is.At+half < begin+int64(p.rule.Period())
	}
	is.From = is.At - int64(p.rule.Period()) + f.skew() + int64(dated)
	return is, true
}

// fixedSince returns when the fixed window began in which a time is.
func (f *fleet) fixedSince(p *spec, at int64) int64 {
	return at - (f.epoch+at)%int64(p.rule.Period())
}

// known returns what a node must count now at the least. Of a sliding window
// that is, wherever its buckets begin, all that is less than a window old, but for one
// bucket's share of the limit, and all that came since its oldest bucket must have
// been over.
func (f *fleet) known(k, place int) (units float64, ok bool) {
	b := &f.keys[k]
	is, ok := f.period(&b.spec)
	units = b.Known(place, is)
	switch {
	case b.endless:
		return units - b.leaked(is.At), ok
	case b.leak > 0:
		// Reports say how long ago units came, by the clock of who has admitted them.
		return units - b.leaked(f.skew()/2+int64(dated)), ok
	case !b.fixed:
		full := is
		full.From += int64(arith.Of(b.rule).Width)
		units = max(units-float64(arith.Of(b.rule).Share), b.Known(place, full))
	}
	return units, ok
}

// leaked returns what leaks in a time.
func (p *spec) leaked(d int64) float64 { return p.leak * float64(d) }

// admitted returns what a person would count of a key now: the units of its
// window, or what its funnel would hold.
func (f *fleet) admitted(k int) float64 {
	b := &f.keys[k]
	is := oracle.Period{From: math.MinInt64, At: when(f.now)}
	switch {
	case b.fixed && !b.endless:
		is.From = f.fixedSince(&b.spec, is.At)
	case b.leak == 0 && !b.endless:
		is.From = is.At - int64(b.rule.Period())
	}
	return b.Total(is)
}
