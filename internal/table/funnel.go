package table

import (
	"math/bits"
	"sync"

	"github.com/hybridlimit/hybridlimit/internal/arith"
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
// node, and never too low for several. Units that are handed back come off
// those that are pending, as far as there are any; the others are reported to
// the authority, and come off what it has told until it has answered.
type funnel struct {
	view  arith.Span // what checks are decided on: (((known − sentBack) ⊕ sent) − back) ⊕ pend
	pend  part
	known arith.Span
	away  *away // nil: nothing is under way
}

// away is the part of a funnel that is under way to the authority. Most funnels have
// none most of the time, so that it is taken from a pool for each report.
type away struct {
	sent           part
	back, sentBack credit // handed back: not reported yet, and reported
	debt, sentDebt int64  // units that were admitted in an outage: of those pending, and of those sent
	spared         int64  // by how many units the view is less than n times the weight, see raise
}

var spareAway = sync.Pool{New: func() any { return new(away) }}

// under returns what is under way, for reading.
func (f *funnel) under() away {
	if f.away == nil {
		return away{}
	}
	return *f.away
}

// put changes what is under way.
func (f *funnel) put(a away) {
	if a.back.span == (arith.Span{}) {
		a.back = credit{}
	}
	if a.sentBack.span == (arith.Span{}) {
		a.sentBack = credit{}
	}
	switch {
	case a != away{}:
		if f.away == nil {
			f.away = spareAway.Get().(*away)
		}
		*f.away = a
	case f.away != nil:
		*f.away = a
		spareAway.Put(f.away)
		f.away = nil
	}
}

// credit is what is to come off a TAT: the cost of units that were handed back,
// less what has leaked by the time it comes off. until is when all of it will have
// leaked: to take it off after that would take off units that others have added
// since. If the TAT is above top by then, others have booked behind, and nothing
// comes off.
type credit struct {
	span, until, top arith.Span
}

// at returns what is left of the credit.
func (c credit) at(r *limit.Rule, now int64) arith.Span {
	return earlier(c.span, r.Sub(c.until, arith.Span{NS: now}))
}

func (c credit) plus(r *limit.Rule, d credit) credit {
	return credit{r.Add(c.span, d.span), c.until.Max(d.until), c.top.Max(d.top)}
}

// part is a run of units: how many, and the TAT of a funnel that saw only them.
type part struct {
	units int64
	tat   arith.Span
}

// maxPart bounds a part's units, so that sums of two never wrap.
const maxPart = 1 << 60

// plus merges p into the TAT x, each unit counting w-fold.
func (p part) plus(r *limit.Rule, x arith.Span, w int64) arith.Span {
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
func (f *funnel) fits(r *limit.Rule, now int64, cost arith.Span) bool {
	at := arith.Span{NS: now}
	return !r.Add(at, r.Full()).Less(r.Add(f.view.Max(at), cost))
}

// take admits n units, which weigh cost units in the view, or refuses them.
func (f *funnel) take(r *limit.Rule, now, n, cost, weight int64, book bool) bool {
	if weight == WeightOpen {
		if book {
			f.book(r, now, n, cost, weight)
		}
		return true
	}
	at, span := arith.Span{NS: now}, r.Cost(cost)
	view := r.Add(f.view.Max(at), span)
	if r.Add(at, r.Full()).Less(view) {
		return false
	}
	if book {
		f.raise(r, at, n, cost, weight, span)
		f.owe(r, at, n, cost, span)
	}
	return true
}

// book counts n units, whether they fit or not.
func (f *funnel) book(r *limit.Rule, now, n, cost, weight int64) {
	at, span := arith.Span{NS: now}, r.Cost(cost)
	if weight != WeightOpen {
		f.raise(r, at, n, cost, weight, span)
	}
	f.owe(r, at, n, cost, span)
}

// raise adds n units to the view, which count as cost. [limit.Rule.Weigh] caps the cost at
// the limit. The difference from n times the weight is kept in spared until the view has run
// empty, and units that are handed back come off spared first. Otherwise a node that asks
// for much and hands most of it back would be admitted the whole limit.
func (f *funnel) raise(r *limit.Rule, at arith.Span, n, cost, weight int64, span arith.Span) {
	if spared := max(satMul(n, weight)-cost, 0); spared > 0 || f.away != nil && f.away.spared > 0 {
		a := f.under()
		if !at.Less(f.view) {
			a.spared = 0
		}
		a.spared = min(a.spared+spared, maxPart)
		f.put(a)
	}
	f.view = r.Add(f.view.Max(at), span)
}

// unspare takes units off spared, and returns how many are left to take off the view.
func (f *funnel) unspare(units int64) (left int64) {
	a := f.under()
	left = max(units-a.spared, 0)
	a.spared -= units - left
	f.put(a)
	return left
}

// owe notes n units that are to be reported to the authority. span is what cost units
// take to leak.
func (f *funnel) owe(r *limit.Rule, at arith.Span, n, cost int64, span arith.Span) {
	if cost != n {
		span = r.Cost(n)
	}
	f.pend.tat = r.Add(f.pend.tat.Max(at), span)
	f.pend.units = min(f.pend.units+n, maxPart)
}

// indebt notes that n more of the pending units were admitted in an outage. The debt
// is at most what is pending.
func (f *funnel) indebt(n int64) {
	a := f.under()
	if debt := min(a.debt+n, f.pend.units); debt != a.debt {
		a.debt = debt
		f.put(a)
	}
}

// forgive notes that the authority has not booked n of the units sent, as it has told.
func (f *funnel) forgive(r *limit.Rule, n int64) {
	if n > 0 {
		a := f.under()
		a.sent.tat = r.Sub(a.sent.tat, r.Cost(n))
		a.sent.units = max(a.sent.units-n, 0)
		f.put(a)
	}
}

// collect moves what is pending to what is sent.
func (f *funnel) collect(r *limit.Rule) {
	a := f.under()
	f.put(away{sent: a.sent.join(r, f.pend), sentBack: a.sentBack.plus(r, a.back), sentDebt: a.sentDebt + a.debt, spared: a.spared})
	f.pend = part{}
}

// giveBack undoes collect: the authority has refused what was sent.
func (f *funnel) giveBack(r *limit.Rule) {
	a := f.under()
	f.pend = a.sent.join(r, f.pend)
	f.put(away{back: a.sentBack.plus(r, a.back), debt: a.sentDebt + a.debt, spared: a.spared})
}

// refund hands back n units that take cost to leak, as far as there are so many in
// the funnel and it does not run empty before least because of that. It returns how
// many, and how many of these will never be reported to the authority: all, unless
// tell is set.
func (f *funnel) refund(r *limit.Rule, now, n, w int64, cost, least arith.Span, tell bool) (back, withdrawn int64) {
	at := arith.Span{NS: now}
	held := r.Whole(r.Sub(f.view, least))
	if !at.Less(least) {
		held = wholeUp(r, r.Sub(f.view, at))
	}
	withdrawn = min(n, f.pend.units)
	if w == WeightClosed {
		w = 1
	}
	spared := int64(0)
	if w > 1 && held > 0 {
		spared = f.under().spared
	}
	if w != WeightOpen { // else what is pending is not in the view
		withdrawn = min(withdrawn, (held+spared+w-1)/w)
	}
	if tell && w == 1 {
		withdrawn = min(withdrawn, r.Whole(cost)) // the fraction of a unit comes off what was told
	}
	weighed := satMul(withdrawn, w)
	if spared > 0 {
		weighed = f.unspare(weighed)
	}
	weighed = min(weighed, held)
	told := min(n-withdrawn, held-weighed) // has come to weigh 1
	if !tell {
		told = 0
	}
	back = withdrawn + told
	if f.pend.units -= withdrawn; f.pend.units == 0 {
		f.pend = part{}
	} else {
		f.pend.tat = r.Sub(f.pend.tat, earlier(r.Cost(withdrawn), cost))
	}
	f.indebt(0)
	off := r.Cost(weighed)
	if w == 1 {
		off = earlier(off, cost)
	}
	if told > 0 {
		rest := r.Sub(earlier(r.Cost(withdrawn+told), cost), r.Cost(withdrawn))
		off = r.Add(off, rest)
		top := f.booked(r, 1).Max(r.Add(at, r.Full()))
		a := f.under()
		a.back = a.back.plus(r, credit{rest, f.told(r, 1), top})
		f.put(a)
	}
	f.view = r.Sub(f.view.Max(at), off).Max(at)
	if w != WeightOpen {
		// A view that was capped at full (see capWeighted) had less of them in it.
		f.view = f.view.Max(f.pend.plus(r, f.told(r, 1), 1))
	}
	return back, withdrawn
}

// renew sets the funnel to what the authority says of it after a reset. What
// is pending was admitted before that, and does not count any more.
func (f *funnel) renew(r *limit.Rule, tat arith.Span, w int64) (withdrawn int64) {
	withdrawn = f.pend.units
	f.known, f.pend = tat, part{}
	f.put(away{sent: f.under().sent, sentDebt: f.under().sentDebt})
	f.compose(r, w)
	return withdrawn
}

// settle takes over the TAT of the authority. If floor is set, which it is not after
// a reset, what this node knew and had sent is a lower bound of the truth, and an
// answer below it by more than slack ns is a sign of lost data.
//
// Both are capped at most. The authority counts time up to a bound, and a level above
// that, be it forged or a debt, would look lost in every answer.
func (f *funnel) settle(r *limit.Rule, tat, most arith.Span, at, slack int64, floor bool, w int64) (lost bool) {
	tat = earlier(tat, most)
	a := f.under()
	a.back.span, a.sentBack.span = a.back.at(r, at), a.sentBack.at(r, at)
	f.put(a)
	if floor {
		least := earlier(f.booked(r, 1), most)
		lost = least.NS > tat.NS+slack && least.NS > at+slack
		tat = tat.Max(least)
	}
	f.known = tat
	f.put(away{back: a.back, debt: a.debt})
	f.compose(r, w)
	return lost
}

func earlier(a, b arith.Span) arith.Span {
	if b.Less(a) {
		return b
	}
	return a
}

// compose recomputes the view, each unsynced unit counting w-fold, in full.
func (f *funnel) compose(r *limit.Rule, w int64) {
	if f.away != nil && f.away.spared > 0 {
		a := f.under()
		a.spared = 0
		f.put(a)
	}
	f.view = f.pend.plus(r, f.told(r, w), w)
}

// told returns the TAT without what is pending.
func (f *funnel) told(r *limit.Rule, w int64) arith.Span {
	return r.Sub(f.booked(r, w), f.under().back.span)
}

// booked returns what the authority should say once it has booked what is sent:
// units that are handed back are of earlier reports, and so come off first.
func (f *funnel) booked(r *limit.Rule, w int64) arith.Span {
	a := f.under()
	return a.sent.plus(r, r.Sub(f.known, a.sentBack.span), w)
}

// reweigh lets unsynced units count is-fold from now on. Only a change from 1
// upwards is applied to earlier ones: that happens when an outage begins, and they
// are those of the last interval. A view that is weighted already is left as it is.
func (f *funnel) reweigh(r *limit.Rule, was, is int64) {
	units := f.under().sent.units + f.pend.units
	switch {
	case was == 1 && is > 1 && units > 0:
		f.view = r.Add(f.view, r.Cost(satMul(units, is-1)))
	case is == 1:
		f.compose(r, 1)
	}
}

// capWeighted caps the weighted view at a full funnel, unless the unweighted one is
// above that. So the weight of what was admitted before the outage lasts for at most
// the time in which a full funnel runs empty.
func (f *funnel) capWeighted(r *limit.Rule, now, w int64) {
	full := r.Add(arith.Span{NS: now}, r.Full())
	if w > 1 && full.Less(f.view) {
		f.view = f.pend.plus(r, f.told(r, 1), 1).Max(full)
	}
}

// convert re-expresses a time at which a funnel is empty in another rule's cost of
// a unit.
func convert(old, rule *limit.Rule, now int64, t arith.Span) arith.Span {
	at := arith.Span{NS: now}
	level := old.Sub(t, at)
	if level == (arith.Span{}) {
		return arith.Span{NS: min(t.NS, now)}
	}
	units := old.Whole(level)
	to := rule.Cost(units)
	if rest := old.Sub(level, old.Cost(units)); rest != (arith.Span{}) {
		// The fraction of a unit is rounded up to a ns. Rounded up to a whole
		// unit it would never leak if rules of two shapes are used in turns.
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

// reshape re-expresses the funnel in another rule's cost of a unit.
func (f *funnel) reshape(old, rule *limit.Rule, now int64) {
	conv := func(t arith.Span) arith.Span { return convert(old, rule, now, t) }
	f.view, f.known = conv(f.view), conv(f.known)
	f.pend.tat = conv(f.pend.tat)
	if f.away == nil {
		return
	}
	f.away.sent.tat = conv(f.away.sent.tat)
	for _, c := range []*credit{&f.away.back, &f.away.sentBack} {
		c.until, c.top = conv(c.until), conv(c.top)
		// Whole units, rounded down: never more than was handed back.
		c.span = rule.Cost(old.Whole(c.span))
	}
}

func satMul(a, b int64) int64 {
	if a > 0 && b > maxPart/a {
		return maxPart
	}
	return a * b
}
