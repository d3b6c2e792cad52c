package algorithm

import (
	"sync"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// rare holds the fields of a leaky bucket that only units in flight, refunds and outages need. Most
// buckets have none of these most of the time, so it is taken from a pool when needed.
type rare struct {
	sent           Run
	back, sentBack credit
	hidden, capped int64 // units that the cap has kept out of the view (see hide), and the limit that capped
	limit          int64 // the largest limit that was lowered while units were pending or sent; 0: none
}

var rarePool = sync.Pool{New: func() any { return new(rare) }}

// under returns a copy of rare.
func (f *LeakyBucket) under() rare {
	if f.rare == nil {
		return rare{}
	}
	return *f.rare
}

// put stores rare, or frees it if nothing in it is set.
func (f *LeakyBucket) put(a rare) {
	if a.back.span == (arith.Span{}) {
		a.back = credit{}
	}
	if a.sentBack.span == (arith.Span{}) {
		a.sentBack = credit{}
	}
	if a.limit > 0 && f.Pend.Units+a.sent.Units == 0 {
		a.limit = 0
	}
	if a.hidden == 0 {
		a.capped = 0
	}
	switch {
	case a != rare{}:
		if f.rare == nil {
			f.rare = rarePool.Get().(*rare)
		}
		*f.rare = a
	case f.rare != nil:
		*f.rare = a
		rarePool.Put(f.rare)
		f.rare = nil
	}
}

// credit is what a refund will subtract from a TAT: the cost of the refunded units, less what has
// leaked by then. until is when all of it will have leaked: to subtract it after that would
// subtract units that others have added since. If the TAT is above top by then, other nodes have
// booked after the refunded units, and nothing is subtracted.
type credit struct {
	span, until, top arith.Span
}

// at returns what is left of the credit.
func (c credit) at(r *arith.Rule, now int64) arith.Span {
	return Earlier(c.span, r.Sub(c.until, arith.Span{NS: now}))
}

// Run is a number of units, and the TAT of a bucket that saw only them.
type Run struct {
	Units int64
	TAT   arith.Span
	Debt  int64 // how many of the units were admitted in an outage
}

// levels computes with the parts of a leaky bucket: what is counted is its TAT.
type levels struct{ r *arith.Rule }

func (m levels) plus(x arith.Span, p Run, w int64) arith.Span {
	if p.Units == 0 {
		return x
	}
	tat := p.TAT
	if w > 1 {
		// The exact multiplied TAT is not kept. This is never below it.
		tat = m.r.Add(tat, m.r.Cost(Times(p.Units, w-1)))
	}
	return m.r.Add(x, m.r.Cost(Times(p.Units, max(w, 1)))).Max(tat)
}

func (m levels) minus(x arith.Span, c credit) arith.Span { return m.r.Sub(x, c.span) }

func (m levels) join(p, q Run) Run {
	switch {
	case p.Units == 0:
		return q
	case q.Units == 0:
		return p
	}
	return Run{Units: min(p.Units+q.Units, MaxUnits), TAT: m.plus(p.TAT, q, 1), Debt: p.Debt + q.Debt}
}

func (m levels) both(c, d credit) credit {
	return credit{m.r.Add(c.span, d.span), c.until.Max(d.until), c.top.Max(d.top)}
}

// leakyParts are the parts of a leaky bucket. They are stored in its fields, because most are empty.
type leakyParts = parts[arith.Span, Run, credit]

func (f *LeakyBucket) parts() *leakyParts {
	a := f.under()
	return &leakyParts{f.Known, a.sentBack, a.sent, a.back, f.Pend}
}

func (f *LeakyBucket) store(p *leakyParts) {
	a := f.under()
	f.Known, a.sentBack, a.sent, a.back, f.Pend = p.known, p.sentBack, p.sent, p.back, p.pend
	f.put(a)
}

// Units returns the units that are not sent, and those that are sent and not acknowledged.
func (f *LeakyBucket) Units() (pending, sent int64) { return f.Pend.Units, f.under().sent.Units }

// Lowered notes that the limit was larger, if units are not acknowledged: Redis may hold as much as
// the larger limit allowed, and these units are added to that.
func (f *LeakyBucket) Lowered(from int64) {
	if a := f.under(); a.limit < from && f.Pend.Units+a.sent.Units > 0 {
		a.limit = from
		f.put(a)
	}
}

// Drained reports whether the bucket has been empty for at least the time that a full one takes to
// run empty.
func (f *LeakyBucket) Drained(r *arith.Rule, now int64) bool {
	full := r.Full.Max(r.Cost(f.under().limit))
	return levels{r}.plus(f.Known, f.Pend, 1).NS < now-int64(full.Ceil())
}

// Drain drops the pending units of a bucket that is drained, and returns how many. It is for
// outages, in which nothing can be reported, and for a bucket that is not used any more.
func (f *LeakyBucket) Drain(r *arith.Rule, now int64) (dropped int64) {
	if f.Pend.Units == 0 || !f.Drained(r, now) {
		return 0
	}
	dropped, f.Pend = f.Pend.Units, Run{}
	return dropped
}

// HasReturns reports whether there are refunds that Redis has not acknowledged.
func (f *LeakyBucket) HasReturns() bool {
	a := f.under()
	return a.back.span != arith.Span{} || a.sentBack.span != arith.Span{}
}

// ReturnsAt reports whether there are refunds that were not sent and whose units have not leaked.
func (f *LeakyBucket) ReturnsAt(r *arith.Rule, now int64) bool {
	return f.under().back.at(r, now) != arith.Span{}
}

// LowerKnown lowers the known level by so many ns.
func (f *LeakyBucket) LowerKnown(ns int64) { f.Known.NS = max(f.Known.NS-ns, 0) }

// Indebt notes that n more of the pending units were admitted in an outage. The debt is never more
// than the pending units.
func (f *LeakyBucket) Indebt(n int64) { f.Pend.Debt = min(f.Pend.Debt+n, f.Pend.Units) }

// ForgiveLate drops units of an outage that would leak after end even in a bucket without other
// units, and returns how many.
func (f *LeakyBucket) ForgiveLate(r *arith.Rule, end arith.Span) (n int64) {
	if !end.Less(f.Pend.TAT) {
		return 0
	}
	if n = min(r.Whole(r.Sub(f.Pend.TAT, end)), f.Pend.Debt); n > 0 {
		f.Pend.Units, f.Pend.TAT = f.Pend.Units-n, r.Sub(f.Pend.TAT, r.Cost(n))
		f.Indebt(0)
	}
	return n
}

// SentDebt returns how many of the sent units were admitted in an outage.
func (f *LeakyBucket) SentDebt() int64 { return f.under().sent.Debt }

// Report writes what is sent, see [Replica].
func (f *LeakyBucket) Report(r *arith.Rule, now, slack int64, rep *report.Report) {
	a, at := f.under(), arith.Span{NS: now}
	rep.Units, rep.Debt, rep.Back = a.sent.Units, a.sent.Debt, a.sentBack.at(r, now)
	if rep.Units > 0 {
		rep.Ahead = r.Diff(a.sent.TAT, at)
	}
	if rep.Back != (arith.Span{}) {
		rep.BackTop = r.Add(r.Sub(a.sentBack.top, at), arith.Span{NS: slack})
	}
}

// KnownState returns the known level. It is negative if the bucket has run empty before now.
func (f *LeakyBucket) KnownState(r *arith.Rule, now int64) (level arith.Span, _ []report.Bucket) {
	return r.Diff(f.Known, arith.Span{NS: now}), nil
}

// KnownUnits returns the known level in units, rounded down.
func (f *LeakyBucket) KnownUnits(r *arith.Rule, now int64) int64 {
	return r.Whole(r.Sub(f.Known, arith.Span{NS: now}))
}

// FullUntil reports whether one unit more than is known would overflow the bucket at now, and until
// when.
func (f *LeakyBucket) FullUntil(r *arith.Rule, now int64) (until int64, full bool) {
	until = int64(r.Sub(r.Add(f.parts().left(levels{r}), r.Cost(1)), r.Full).Ceil())
	return until, until > now
}

// Blank reports whether all that is known has leaked.
func (f *LeakyBucket) Blank(now int64) bool { return f.Known.NS <= now }

// KeepSent makes sent units known, without an answer.
func (f *LeakyBucket) KeepSent(r *arith.Rule, w int64) {
	p := f.parts()
	p.keepSent(levels{r})
	f.store(p)
	f.compose(r, w)
}

// KeepSentBack drops the refunds that were sent: their units go on counting.
func (f *LeakyBucket) KeepSentBack(r *arith.Rule, w int64) {
	a := f.under()
	a.sentBack = credit{}
	f.put(a)
	f.compose(r, w)
}

// DropSent drops what was sent.
func (f *LeakyBucket) DropSent(r *arith.Rule, w int64) {
	p := f.parts()
	p.dropSent()
	f.store(p)
	f.compose(r, w)
}

// SettleAlone drops the record of refunds, for a bucket without Redis: the view does not contain
// their units any more.
func (f *LeakyBucket) SettleAlone() { f.put(rare{}) }

// Forgive notes that Redis has not booked n of the units sent, by its answer.
func (f *LeakyBucket) Forgive(r *arith.Rule, n int64) {
	if n > 0 {
		a := f.under()
		a.sent.TAT = r.Sub(a.sent.TAT, r.Cost(n))
		a.sent.Units = max(a.sent.Units-n, 0)
		f.put(a)
	}
}

// Collect makes all pending units sent units.
func (f *LeakyBucket) Collect(r *arith.Rule) {
	p := f.parts()
	p.collect(levels{r})
	f.store(p)
}

// GiveBack undoes Collect: Redis has refused what was sent.
func (f *LeakyBucket) GiveBack(r *arith.Rule) (expired int64) {
	p := f.parts()
	p.giveBack(levels{r})
	f.store(p)
	return 0
}

// Renew sets the bucket to what Redis says of it after a reset. Pending units were admitted before
// the reset, and do not count any more.
func (f *LeakyBucket) Renew(r *arith.Rule, a report.Answer, w int64) (withdrawn int64) {
	withdrawn = f.Pend.Units
	f.store(&leakyParts{known: r.Add(arith.Span{NS: a.At}, a.Level), sent: f.under().sent})
	f.compose(r, w)
	return withdrawn
}

// Settle applies an answer, see [Replica]. Times are capped at the longest that Redis counts: a level above
// that (forged, or a debt) would look like lost data in every answer.
//
// Redis forgets a bucket that has run empty. Units that this node admits before it learns of that,
// and reports later, count in Redis from an empty bucket. Here they count on top of what was in the
// bucket when they were admitted.
func (f *LeakyBucket) Settle(r *arith.Rule, a report.Answer, w int64) Settled {
	at := arith.Span{NS: a.At}
	most := r.Add(at, arith.Span{NS: int64(arith.MaxWindow)})
	tat := Earlier(r.Add(a.Level, at).Max(arith.Span{}), most)
	owed := f.Known.NS > a.At+a.Slack // by what we knew, the bucket had not run empty
	p, least, low := f.parts(), tat, false
	p.back.span, p.sentBack.span = p.back.at(r, a.At), p.sentBack.at(r, a.At)
	if a.Floor {
		least = Earlier(p.booked(levels{r}, 1), most)
		low = least.NS > tat.NS+a.Slack && least.NS > a.At+a.Slack
	}
	p.known = tat.Max(least)
	p.dropSent()
	f.store(p)
	f.compose(r, w)
	return Settled{Lost: low && owed, Forgotten: low && !owed, Below: tat.Less(f.Known)}
}

// ForgiveKnown subtracts from the known level those of n units that Redis forgives after an outage:
// the ones above the TAT top. The level does not fall below that of the answer.
func (f *LeakyBucket) ForgiveKnown(r *arith.Rule, n int64, top arith.Span, a report.Answer, w int64) {
	if n = min(n, r.Whole(r.Sub(f.Known, top))); n <= 0 {
		return
	}
	f.Known = r.Sub(f.Known, r.Cost(n)).Max(r.Add(a.Level, arith.Span{NS: a.At}))
	f.compose(r, w)
}

// compose recomputes the view in full, each unacknowledged unit counting as w units.
func (f *LeakyBucket) compose(r *arith.Rule, w int64) {
	if f.rare != nil && f.rare.hidden > 0 {
		a := f.under()
		a.hidden = 0
		f.put(a)
	}
	f.View = f.parts().view(levels{r}, w)
}
