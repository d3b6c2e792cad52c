package algorithm

import (
	"math"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// KnowsClock reports whether the offset of the authority's clock was measured.
func (w *Window) KnowsClock() bool { return w.sure }

// Follow applies the known offset of the authority's clock: the most that it may be, and a later
// reading only if it excludes that. A window that went by less would see its units leave early as
// soon as a better reading puts it ahead. What it reports at once is not ahead of the authority's
// clock when it arrives there. If the window used a guess, its newest bucket is the one of the
// latest check.
func (w *Window) Follow(r *arith.Rule, now, last, multiplier int64, clock Clock) {
	if clock.WentBack {
		w.wentBack(r, clock.BackTo)
	}
	if !clock.Sure || w.sure && clock.mayBe(w.off) {
		return
	}
	if !w.sure && last != math.MinInt64 {
		now = min(now, last)
	}
	if w.rebase(r, now, clock.Off, clock.Slack) {
		w.sum(r, multiplier)
	}
}

// rebase takes over a new reading of how far the authority's clock is ahead.
//
// The first reading replaces a guess: what was counted until then keeps its age
// and gets other IDs. After that the IDs are right, because the authority knows the
// buckets by them, and the ages were wrong: our clock stood still or was set, or the
// authority's was. The next roll makes up for time that was missed. If the newest
// bucket lies ahead by more than the slack of such readings, the window goes back,
// and what lies ahead counts as current, as it does at the authority.
//
// If the window uses a guess, its newest bucket must be the one of now. The caller
// must call sum if rebase returns true.
func (w *Window) rebase(r *arith.Rule, now, off, slack int64) (moved bool) {
	width, ahead := int64(r.Width), off-w.off
	first := !w.sure
	w.off, w.sure = off, true
	switch {
	case first:
		w.move(r, r, now, ahead)
		return true
	case w.begins(r)-(now+off) > slack && floorDiv(now+off, width) < w.cur:
		w.retreat(r, now)
		return true
	}
	return false
}

// read takes over what the authority's clock showed at, or shortly before, our time at,
// if the window uses a guess. It is about to get all that counts, in buckets with the
// IDs of the authority: from now on the IDs are right, see rebase.
func (w *Window) read(r *arith.Rule, at, server int64) {
	if !w.sure {
		w.rebase(r, at, server-at, 0)
		w.moved = false
	}
}

// wentBack notes that the authority's clock was set back to some time. It may have been put
// right since. Buckets that lay ahead meanwhile may have been merged into another one when
// nodes booked. So a unit that is missing in its bucket is no sign of lost data.
func (w *Window) wentBack(r *arith.Rule, to int64) {
	for _, b := range w.list {
		w.moved = w.moved || b.known > 0 && b.id*int64(r.Width) > to
	}
}

// retreat goes back to the bucket of now. What lies ahead counts in that.
func (w *Window) retreat(r *arith.Rule, now int64) {
	w.cur, w.moved = floorDiv(now+w.off, int64(r.Width)), true
	w.put(r, func(b bucket) (id, last int64) { return min(b.id, w.cur), b.last })
	if i, found := w.find(w.cur); found {
		w.list[i].last = w.elapsed(r, now)
	}
}

// Reshape re-expresses the window in the buckets of another rule.
func (w *Window) Reshape(old, rule *arith.Rule, now, multiplier int64) (expired int64) {
	expired = w.Roll(old, now, multiplier)
	w.move(old, rule, now, 0)
	return expired + w.sum(rule, multiplier)
}

// move replaces the window by one of another rule at now, with the same units. Each bucket
// goes into the bucket in which its last unit lies, after that is moved ahead by so many ns.
// The earlier units of a bucket may count too long after that, never too short. The caller must
// call sum.
func (w *Window) move(old, rule *arith.Rule, now, ahead int64) {
	width := int64(rule.Width)
	w.cur = floorDiv(now+w.off, width)
	w.put(rule, func(b bucket) (id, last int64) {
		at := b.id*int64(old.Width) + b.last + ahead
		id = floorDiv(at, width)
		switch {
		case id >= w.cur:
			return w.cur, min(at-w.begins(rule), width)
		case w.cur-id > int64(rule.Kept) && old == rule:
			return w.cur - int64(rule.Kept), 0 // only a change of the rule expires units
		}
		return id, at - id*width
	})
}

// put puts each bucket into the one that to returns, with the time of its last unit there.
func (w *Window) put(r *arith.Rule, to func(b bucket) (id, last int64)) {
	from, back := slices.Clone(w.list), w.handed
	w.list = w.list[:0]
	if back != nil {
		w.handed = &handed{claim: back.claim}
	}
	for _, b := range from {
		h := back.of(b.id)
		h.id, b.last = to(b)
		is := w.bucket(r, h.id)
		*is = bucket{
			id: h.id, last: max(is.last, b.last), known: min(is.known+b.known, MaxUnits),
			sent: min(is.sent+b.sent, MaxUnits), pend: min(is.pend+b.pend, MaxUnits),
		}
		w.handBack(h)
	}
}
