package algorithm

import (
	"math"

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
	switch begin := w.end - width; {
	case first:
		w.move(r, r, now, ahead)
		return true
	case begin-(now+off) > slack && floorDiv(now+off, width) < w.cur:
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
	begin := w.end - int64(r.Width)
	for i, u := range w.known {
		w.moved = w.moved || u > 0 && begin-int64(i)*int64(r.Width) > to
	}
}

// retreat goes back to the bucket of now. What lies ahead counts in that.
func (w *Window) retreat(r *arith.Rule, now int64) {
	width := int64(r.Width)
	id := floorDiv(now+w.off, width)
	k := w.cur - id
	unshift(w.pend, k)
	unshift(w.known, k)
	unshift(w.sent, k)
	unshift(w.back, k)
	unshift(w.sentBack, k)
	unshift(w.last, k)
	w.cur, w.end, w.moved = id, (id+1)*width, true
	w.last[0] = w.elapsed(r, now)
}

// Reshape re-expresses the window in the buckets of another rule.
func (w *Window) Reshape(old, rule *arith.Rule, now, multiplier int64) (expired int64) {
	expired = w.Roll(old, now, multiplier)
	before := w.pendUnits
	w.move(old, rule, now, 0)
	w.sum(rule, multiplier)
	return expired + before - w.pendUnits
}

// move replaces the window by one of another rule at now, with the same units. Each bucket
// goes into the bucket in which its last unit lies, after that is moved ahead by so many ns.
// The earlier units of a bucket may count too long after that, never too short.
func (w *Window) move(old, rule *arith.Rule, now, ahead int64) {
	is := NewWindow(rule, now, w.off, w.sure)
	n, width := int64(len(is.pend)), int64(rule.Width)
	// to returns where bucket i goes, and when its last unit came there.
	to := func(i int) (age, last int64) {
		at := (w.cur-int64(i))*int64(old.Width) + w.last[i] + ahead
		id := floorDiv(at, width)
		switch {
		case id >= is.cur:
			return 0, min(at-is.cur*width, width)
		case is.cur-id >= n && old == rule:
			return n - 1, 0 // only a change of the rule expires units
		}
		return is.cur - id, at - id*width
	}
	move := func(from []int64) (moved []int64, total int64) {
		if from == nil {
			return nil, 0
		}
		moved = make([]int64, n)
		for i, u := range from {
			age, last := to(i)
			if u == 0 || age >= n {
				continue
			}
			moved[age], total = min(moved[age]+u, MaxUnits), total+u
			is.last[age] = max(is.last[age], last)
		}
		return moved, total
	}
	is.sentUnits, is.moved, is.late, is.claim = w.sentUnits, w.moved, w.late, w.claim
	is.known, _ = move(w.known)
	is.sent, _ = move(w.sent)
	is.pend, is.pendUnits = move(w.pend)
	if w.back != nil {
		is.handed = new(handed)
		is.back, is.backUnits = move(w.back)
		is.sentBack, _ = move(w.sentBack)
	}
	*w = *is
}
