package local

import (
	"math/bits"

	"github.com/hybridlimit/hybridlimit/limit"
)

// funnel is a leaky bucket kept as the time at which it will be empty (its
// theoretical arrival time, TAT, as the generic cell rate algorithm calls it).
// The zero funnel is empty.
//
// For a shared funnel three parts are kept. known is the TAT that the
// authority has told; sent and pend are this node's units since then, each
// with the TAT of a funnel that saw only them. Merging is max-plus algebra:
// a part raises a TAT x to max(x + units·T, part.tat). That is exact for one
// node, and never too low for several.
type funnel struct {
	view  limit.Span // what checks are decided on: known ⊕ sent ⊕ pend
	known limit.Span
	sent  part
	pend  part
}

// part is a run of units: how many, and the TAT of a funnel that saw only them.
type part struct {
	units int64
	tat   limit.Span
}

// maxPart bounds a part's units, so that sums of two never wrap.
const maxPart = 1 << 60

// plus merges p into the TAT x, each unit counting w-fold.
func (p part) plus(r *limit.Rule, x limit.Span, w int64) limit.Span {
	if p.units == 0 {
		return x
	}
	tat := p.tat
	if w > 1 {
		// The exact weighted TAT is not kept. This is never below it.
		tat = r.Add(tat, r.Cost(satMul(p.units, w-1)))
	}
	return r.Add(x, r.Cost(satMul(p.units, max(w, 1)))).Max(tat)
}

// join appends q to p: q's units came after (or beside) p's.
func (p part) join(r *limit.Rule, q part) part {
	if p.units == 0 {
		return q
	}
	if q.units == 0 {
		return p
	}
	return part{units: min(p.units+q.units, maxPart), tat: q.plus(r, p.tat, 1)}
}

// fits reports whether cost can be added at now without spilling.
func (f *funnel) fits(r *limit.Rule, now int64, cost limit.Span) bool {
	at := limit.Span{NS: now}
	return !r.Add(at, r.Full()).Less(r.Add(f.view.Max(at), cost))
}

// take admits n units, which weigh cost units in the view, or refuses them.
func (f *funnel) take(r *limit.Rule, now, n, cost, weight int64, book bool) bool {
	span := r.Cost(cost)
	if weight != WeightOpen && !f.fits(r, now, span) {
		return false
	}
	if !book {
		return true
	}
	at := limit.Span{NS: now}
	if weight != WeightOpen {
		f.view = r.Add(f.view.Max(at), span)
	}
	if cost != n {
		span = r.Cost(n)
	}
	f.pend.tat = r.Add(f.pend.tat.Max(at), span)
	f.pend.units = min(f.pend.units+n, maxPart)
	return true
}

// collect moves what is pending to what is sent.
func (f *funnel) collect(r *limit.Rule) {
	f.sent = f.sent.join(r, f.pend)
	f.pend = part{}
}

// giveBack undoes collect: the authority has refused what was sent.
func (f *funnel) giveBack(r *limit.Rule) {
	f.pend = f.sent.join(r, f.pend)
	f.sent = part{}
}

// settle takes the authority's TAT over. What this node knew, together with
// what it had sent, is a lower bound of the truth unless the key was reset;
// an answer below it (by more than slack ns) is a sign of lost data.
//
// Neither counts beyond most. The authority's time ends somewhere, and a level
// above that end, be it forged or a debt, would be missed in every answer.
func (f *funnel) settle(r *limit.Rule, tat, most limit.Span, at, slack int64, reset bool, w int64) (lost bool) {
	tat = earlier(tat, most)
	if !reset {
		floor := earlier(f.sent.plus(r, f.known, 1), most)
		lost = floor.NS > tat.NS+slack && floor.NS > at+slack
		tat = tat.Max(floor)
	}
	f.known, f.sent = tat, part{}
	f.compose(r, w)
	return lost
}

func earlier(a, b limit.Span) limit.Span {
	if b.Less(a) {
		return b
	}
	return a
}

// compose recomputes the view, each unsynced unit counting w-fold.
func (f *funnel) compose(r *limit.Rule, w int64) {
	f.view = f.pend.plus(r, f.sent.plus(r, f.known, w), w)
}

// reweigh lets unsynced units count is-fold from now on. Only a change from 1
// upwards is applied to them: that happens when an outage begins, and they
// are those of the last interval. A view already weighted goes on as it is.
func (f *funnel) reweigh(r *limit.Rule, was, is int64) {
	units := f.sent.units + f.pend.units
	switch {
	case was == 1 && is > 1 && units > 0:
		f.view = r.Add(f.view, r.Cost(satMul(units, is-1)))
	case is == 1:
		f.compose(r, 1)
	}
}

// capWeighted keeps the weight of what was admitted before the outage from
// outliving one drain: the weighted view ends at a full funnel, unless the
// unweighted one is above that.
func (f *funnel) capWeighted(r *limit.Rule, now, w int64) {
	full := r.Add(limit.Span{NS: now}, r.Full())
	if w > 1 && full.Less(f.view) {
		f.view = f.pend.plus(r, f.sent.plus(r, f.known, 1), 1).Max(full)
	}
}

// absorb takes over the older counter d of the same key. f is young: it was
// created while d was on its way out of the cache.
func (f *funnel) absorb(r *limit.Rule, d *funnel, w int64) {
	own := r.Cost(f.sent.units + f.pend.units)
	view := f.view.Max(r.Add(d.view, own))
	f.known = f.known.Max(d.known)
	f.sent = d.sent.join(r, f.sent)
	f.pend = d.pend.join(r, f.pend)
	if f.known != (limit.Span{}) {
		f.compose(r, w)
	}
	f.view = f.view.Max(view)
}

// reshape re-expresses the funnel in another rule's cost of a unit.
func (f *funnel) reshape(old, rule *limit.Rule, now int64) {
	at := limit.Span{NS: now}
	conv := func(t limit.Span) limit.Span {
		level := old.Sub(t, at)
		if level == (limit.Span{}) {
			return limit.Span{NS: min(t.NS, now)}
		}
		units := old.Whole(level)
		to := rule.Cost(units)
		if rest := old.Sub(level, old.Cost(units)); rest != (limit.Span{}) {
			// The part of a unit, rounded up to a nanosecond: to a whole unit
			// would never drain if two shapes are asked in turn.
			hi, lo := bits.Mul64(uint64(rest.NS+1), uint64(rule.Cost(1).NS+1))
			if d := uint64(old.Cost(1).NS); d > hi {
				q, _ := bits.Div64(hi, lo, d)
				to = rule.Add(to, limit.Span{NS: int64(min(q+1, uint64(rule.Cost(1).NS+1)))})
			} else {
				to = rule.Add(to, rule.Cost(1))
			}
		}
		return rule.Add(at, to)
	}
	f.view, f.known = conv(f.view), conv(f.known)
	f.sent.tat, f.pend.tat = conv(f.sent.tat), conv(f.pend.tat)
}

func satMul(a, b int64) int64 {
	if a > 0 && b > maxPart/a {
		return maxPart
	}
	return a * b
}
