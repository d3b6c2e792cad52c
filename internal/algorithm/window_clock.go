package algorithm

import (
	"math"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Follow applies a reading of Redis' clock. last is the time of the latest check, [math.MinInt64] if
// there was none. It uses the largest possible offset, and
// replaces it only when a later reading excludes it. With a smaller offset, units would leave the
// window early as soon as a better reading moves it ahead. Even so, a report that is sent at once
// is not ahead of Redis' clock when it arrives there. If the window used a guess, its newest bucket
// is the one of the latest check.
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

// rebase applies a new reading of how far Redis' clock is ahead.
//
// The first reading replaces a guess. What was counted until then keeps its age and gets other IDs.
// After that the IDs are right, because Redis knows the buckets by them. If the offset changes
// then, the ages were wrong: our clock stood still or was set, or Redis' clock was. The next roll
// makes up for missed time. If the newest bucket begins ahead of now by more than slack, the window
// goes back, and the units of later buckets count in the current one, as they do in Redis.
//
// If the window uses a guess, its newest bucket must be that of now. The caller must call sum if
// rebase returns true.
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

// read applies what Redis' clock showed at our time at, or shortly before, if the window uses a
// guess. The caller is about to replace the known units by buckets with Redis' IDs, so the IDs are
// right from now on, see rebase.
func (w *Window) read(r *arith.Rule, at, server int64) {
	if !w.sure {
		w.rebase(r, at, server-at, 0)
		w.moved = false
	}
}

// wentBack notes that Redis' clock was set back to a time. It may have been corrected since.
// Meanwhile, when a node booked, Redis may have merged the buckets ahead of its clock into another
// one. So a unit that is missing in its bucket is no sign of lost data.
func (w *Window) wentBack(r *arith.Rule, to int64) {
	for _, b := range w.list {
		w.moved = w.moved || b.known > 0 && b.id*int64(r.Width) > to
	}
}

// retreat goes back to the bucket of now. Units of later buckets then count in that one.
func (w *Window) retreat(r *arith.Rule, now int64) {
	w.cur, w.moved = floorDiv(now+w.off, int64(r.Width)), true
	w.put(r, func(b bucket) (id, last int64) { return min(b.id, w.cur), b.last })
	if i, found := w.find(w.cur); found {
		w.list[i].last = w.elapsed(r, now)
	}
}

// Reshape converts the window to the buckets of another rule.
func (w *Window) Reshape(old, rule *arith.Rule, now, multiplier int64) (expired int64) {
	expired = w.Roll(old, now, multiplier)
	w.move(old, rule, now, 0)
	return expired + w.sum(rule, multiplier)
}

// move converts the window to another rule at now, with the same units. Each bucket goes into the
// new bucket in which its last unit lies, after the time of that unit was moved forward by ahead
// ns. So the earlier units of a bucket may count too long, but never too short. The caller must
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

// put moves each bucket to the ID that to returns, with the time of its last unit there.
func (w *Window) put(r *arith.Rule, to func(b bucket) (id, last int64)) {
	from := slices.Clone(w.list)
	w.list = w.list[:0]
	for _, b := range from {
		id, last := to(b)
		is := w.bucket(r, id)
		*is = bucket{
			id: id, last: max(is.last, last), known: min(is.known+b.known, MaxUnits),
			sent: min(is.sent+b.sent, MaxUnits), pend: min(is.pend+b.pend, MaxUnits),
			back: min(is.back+b.back, MaxUnits), sentBack: min(is.sentBack+b.sentBack, MaxUnits),
		}
	}
}
