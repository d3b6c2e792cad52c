package algorithm

import (
	"math"
	"math/bits"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// LeakyBucket is a leaky bucket (GCRA), kept as the time at which it will be empty: its
// theoretical arrival time, TAT, as the generic cell rate algorithm calls it.
// The zero LeakyBucket is empty.
//
// A shared bucket has parts, see parts: the known part is the TAT by Redis' last answer, and units have
// the TAT of a bucket that saw only them. Their sum is max-plus algebra: a run of units moves a TAT x to
// max(x + units·T, TAT of the run). That is exact for one node, and never too low for several.
type LeakyBucket struct {
	View  arith.Span // decides checks, see parts.view
	Pend  Run        // units that were not sent to Redis yet
	Known arith.Span // TAT by Redis' last answer
	rare  *rare      // nil: all its fields are 0
}

// Fits reports whether cost more units can be added without overflow.
func (f *LeakyBucket) Fits(r *arith.Rule, now, cost int64) bool {
	at := arith.Span{NS: now}
	return !r.Add(at, r.Full).Less(r.Add(f.View.Max(at), r.Cost(cost)))
}

// Book counts n units, whether they fit or not.
func (f *LeakyBucket) Book(r *arith.Rule, now, n, cost, multiplier int64) {
	at, span := arith.Span{NS: now}, r.Cost(cost)
	if multiplier != MultiplierOpen {
		f.hide(r, at, Times(n, multiplier)-cost)
		f.View = r.Add(f.View.Max(at), span)
	}
	if cost != n {
		span = r.Cost(n)
	}
	f.Pend.TAT = r.Add(f.Pend.TAT.Max(at), span)
	f.Pend.Units = min(f.Pend.Units+n, MaxUnits)
}

// hide notes that so many units are not in the view, because [arith.Rule.Multiplied] has capped them at
// the limit. They stay noted until the view has run empty, and a refund is subtracted from them first.
// Otherwise a node that takes many units and refunds most of them would be admitted the whole limit again.
func (f *LeakyBucket) hide(r *arith.Rule, at arith.Span, n int64) {
	if n <= 0 && (f.rare == nil || f.rare.hidden == 0) {
		return
	}
	a := f.under()
	if !at.Less(f.View) {
		a.hidden = 0
	}
	if n > 0 {
		a.hidden, a.capped = min(a.hidden+n, MaxUnits), r.Limit
	}
	f.put(a)
}

// Unmultiplied returns when the bucket would be empty if each of its units counted once.
func (f *LeakyBucket) Unmultiplied(r *arith.Rule) arith.Span {
	return f.parts().view(levels{r}, 1)
}

// Describe returns the whole answer to a check, see [State].
func (f *LeakyBucket) Describe(r *arith.Rule, now, n, multiplier int64, allowed bool) limit.Result {
	return decision.LeakyBucket(r, allowed, n, multiplier, r.Sub(f.View, arith.Span{NS: now}))
}

// FitsAt returns the time before which cost more units cannot fit.
func (f *LeakyBucket) FitsAt(r *arith.Rule, now, cost int64) int64 {
	return int64(r.Sub(r.Add(f.View.Max(arith.Span{NS: now}), r.Cost(cost)), r.Full).Ceil())
}

// Usage reports whether any units count, and whether one more would be refused.
func (f *LeakyBucket) Usage(r *arith.Rule, now int64) (used, denies bool) {
	return f.View.NS >= now, !f.Fits(r, now, 1)
}

// Claim does nothing: units of a leaky bucket are booked ahead instead.
func (f *LeakyBucket) Claim(*arith.Rule, int64, int64) int64 { return 0 }

// Set replaces what is counted by n units.
func (f *LeakyBucket) Set(r *arith.Rule, now, n int64) {
	if *f = (LeakyBucket{}); n > 0 {
		f.Book(r, now, n, n, 1)
	}
}

// Spare returns no bound: the level bounds a lease of a leaky bucket.
func (f *LeakyBucket) Spare(*arith.Rule, int64, Clock) int64 { return MaxUnits }

// Lease returns the level at last.
func (f *LeakyBucket) Lease(r *arith.Rule, last int64) (level arith.Span, until int64) {
	return r.Sub(f.View, arith.Span{NS: last}), math.MaxInt64
}

// Spend counts n units that a lease has admitted, see [State]. They came before now, at times that
// are not known. So the TAT of the pending part may be too late. That is harmless as long as it is
// not later than the view.
func (f *LeakyBucket) Spend(r *arith.Rule, now, last, n int64, empty arith.Span) {
	f.View = empty
	f.Pend.TAT = Earlier(f.View, r.Add(f.Pend.TAT.Max(arith.Span{NS: max(now, last)}), r.Cost(n)))
	f.Pend.Units = min(f.Pend.Units+n, MaxUnits)
}

// Refund subtracts units, see [State].
func (f *LeakyBucket) Refund(r *arith.Rule, now, w int64, d Refund) (back, taken, withdrawn int64) {
	at, cost := arith.Span{NS: now}, d.Cost
	held := r.Whole(r.Sub(f.View, d.Least))
	if !at.Less(d.Least) {
		held = r.WholeUp(r.Sub(f.View, at))
	}
	withdrawn = min(d.Units, f.Pend.Units)
	if w == MultiplierClosed {
		w = 1
	}
	hidden := int64(0)
	if w > 1 && held > 0 {
		hidden = f.under().hidden
	}
	if w != MultiplierOpen { // with MultiplierOpen pending units are not in the view
		withdrawn = min(withdrawn, (held+hidden+w-1)/w)
	}
	if whole := r.Whole(cost); d.Reported && w == 1 && whole < withdrawn && !r.Sub(f.parts().reported(levels{r}, 1), at).Less(r.Sub(cost, r.Cost(whole))) {
		withdrawn = whole // the fraction of a unit is subtracted from reported units
	}
	multiplied := Times(withdrawn, w)
	if hidden > 0 {
		a, fromHidden := f.under(), min(multiplied, hidden)
		a.hidden, multiplied = hidden-fromHidden, multiplied-fromHidden
		f.put(a)
	}
	multiplied = min(multiplied, held)
	known := int64(0)
	if d.Reported {
		known = min(d.Units-withdrawn, held-multiplied) // these have multiplier 1
	}
	back = withdrawn + known
	if f.Pend.Units -= withdrawn; f.Pend.Units == 0 {
		f.Pend = Run{}
	} else {
		f.Pend.TAT = r.Sub(f.Pend.TAT, Earlier(r.Cost(withdrawn), cost))
	}
	f.Indebt(0)
	off := r.Cost(multiplied)
	if w == 1 {
		off = Earlier(off, cost)
	}
	if known > 0 {
		rest := r.Sub(Earlier(r.Cost(withdrawn+known), cost), r.Cost(withdrawn))
		off = r.Add(off, rest)
		// Until: not less what is to be refunded already, because Redis may have booked more since.
		p := f.parts()
		until := p.booked(levels{r}, 1)
		p.back = levels{r}.both(p.back, credit{rest, until, until.Max(r.Add(at, r.Full))})
		f.store(p)
	}
	f.View = r.Sub(f.View.Max(at), off).Max(at)
	if w != MultiplierOpen {
		// A view that was capped at full (see CapMultiplied) contained less than these units.
		f.View = f.View.Max(f.Unmultiplied(r))
	}
	return back, back, withdrawn
}

// SetMultiplier makes an unacknowledged unit count as is units from now on. It applies to earlier
// units only if the multiplier was 1 and grows: that is when an outage begins, and these are the
// units of the last interval. A view that is multiplied already stays as it is.
func (f *LeakyBucket) SetMultiplier(r *arith.Rule, now, was, is int64) {
	units := f.under().sent.Units + f.Pend.Units
	switch {
	case was == 1 && is > 1 && units > 0:
		f.View = r.Add(f.View, r.Cost(Times(units, is-1)))
	case is == 1:
		f.compose(r, 1)
	}
	f.CapMultiplied(r, now, is)
}

// Restored notes that the limit has become larger. It moves units from hidden to the view: at most
// by how much the limit is larger than the one that capped them. If the limit is lowered and raised
// again it moves none, because they are in the view already.
func (f *LeakyBucket) Restored(r *arith.Rule, now int64) {
	a := f.under()
	if by := min(r.Limit-a.capped, a.hidden); by > 0 && f.View.NS >= now {
		f.View = r.Add(f.View, r.Cost(by))
		a.hidden, a.capped = a.hidden-by, r.Limit
		f.put(a)
	}
}

// CapMultiplied caps the multiplied view at a full bucket, unless the view without multiplier is
// above that. So the multiplier of what was admitted before the outage lasts no longer than a full
// bucket takes to run empty.
func (f *LeakyBucket) CapMultiplied(r *arith.Rule, now, w int64) {
	full := r.Add(arith.Span{NS: now}, r.Full)
	if w > 1 && full.Less(f.View) {
		f.View = f.Unmultiplied(r).Max(full)
		if a := f.under(); a.capped > r.Limit {
			a.capped = r.Limit // what a larger limit had admitted was subtracted
			f.put(a)
		}
	}
}

// Convert converts a TAT to another rule: the level in units stays the same.
func Convert(old, rule *arith.Rule, now int64, t arith.Span) arith.Span {
	at := arith.Span{NS: now}
	level := old.Sub(t, at)
	if level == (arith.Span{}) {
		return arith.Span{NS: min(t.NS, now)}
	}
	units := old.Whole(level)
	to := rule.Cost(units)
	if rest := old.Sub(level, old.Cost(units)); rest != (arith.Span{}) {
		// Round the fraction of a unit up to a ns. Rounded up to a whole unit it would never leak
		// when rules of two shapes are used in turn.
		hi, lo := bits.Mul64(uint64(rest.NS+1), uint64(rule.Cost(1).NS+1))
		if d := uint64(old.Cost(1).NS); d > hi {
			q, _ := bits.Div64(hi, lo, d)
			to = rule.Add(to, arith.Span{NS: int64(min(q+1, uint64(rule.Cost(1).NS+1)))})
		} else {
			to = rule.Add(to, rule.Cost(1))
		}
	}
	return rule.Add(at, to)
}

// Reshape converts the bucket to another rule's cost of a unit.
func (f *LeakyBucket) Reshape(old, rule *arith.Rule, now, _ int64) (expired int64) {
	conv := func(t arith.Span) arith.Span { return Convert(old, rule, now, t) }
	f.View, f.Known = conv(f.View), conv(f.Known)
	f.Pend.TAT = conv(f.Pend.TAT)
	if f.rare == nil {
		return 0
	}
	f.rare.sent.TAT = conv(f.rare.sent.TAT)
	for _, c := range []*credit{&f.rare.back, &f.rare.sentBack} {
		c.until, c.top = conv(c.until), conv(c.top)
		// Whole units, rounded down: never more than was refunded.
		c.span = rule.Cost(old.Whole(c.span))
	}
	return 0
}
