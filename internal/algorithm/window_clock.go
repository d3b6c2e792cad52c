package algorithm

import (
	"math"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// Follow applies a reading of Redis' clock. last is the time of the latest check, [math.MinInt64] if
// there was none. It uses the largest possible offset, and
// replaces it only when a later reading excludes it. With a smaller offset, units would leave the
// window early as soon as a better reading moves it ahead. Even so, a report that is sent at once
// is not ahead of Redis' clock when it arrives there. If the window used a guess, its newest bucket
// is the one of the latest check. A guess replaces another one only for a calendar, which must not begin at a
// wrong midnight.
func (w *Window) Follow(r *arith.Rule, now, last, multiplier int64, clock Clock) {
	if clock.WentBack {
		w.wentBack(r, clock.BackTo)
	}
	if w.sure && (!clock.Sure || clock.mayBe(w.off)) || !clock.Sure && (r.Calendar == nil || clock.Off == w.off) {
		return
	}
	if !w.sure && last != math.MinInt64 {
		now = min(now, last)
	}
	if w.rebase(r, now, clock) {
		w.sum(r, multiplier)
	}
}

// rebase applies a new reading of how far Redis' clock is ahead.
//
// The first reading replaces a guess. What was counted until then keeps its age and gets other IDs.
// After that the IDs are right, because Redis knows the buckets by them. If the offset changes
// then, the ages were wrong: our clock stood still or was set, or Redis' clock was. The next roll
// makes up for missed time. If the newest bucket begins ahead of now by more than the slack, the window
// goes back, and the units of later buckets count in the current one, as they do in Redis.
//
// If the window uses a guess, its newest bucket must be that of now. The caller must call sum if
// rebase returns true.
func (w *Window) rebase(r *arith.Rule, now int64, clock Clock) (moved bool) {
	ahead := clock.Off - w.off
	first := !w.sure
	w.off, w.sure = clock.Off, clock.Sure
	switch {
	case first:
		w.move(r, r, now, ahead)
		return true
	case r.Ends(w.cur-1)-(now+w.off) > clock.Slack && r.Index(now+w.off) < w.cur-w.early(r):
		w.retreat(r, r.Index(now+w.off), now)
		return true
	}
	return false
}

// early returns by how many buckets the current one may be ahead of Redis' clock: see [arith.Rule.Early], if
// Redis counts in it.
func (w *Window) early(r *arith.Rule) int64 {
	if i, found := w.find(w.cur); found && w.list[i].known > 0 {
		return r.Early()
	}
	return 0
}

// agree goes to the period of a calendar in which Redis counts: the next one, if it has begun early, or back
// to the present one, if the current one has begun by a clock that was set back since.
func (w *Window) agree(r *arith.Rule, a report.Answer) {
	if r.Early() == 0 || !w.sure {
		return
	}
	id := w.serverBucket(r, a)
	switch {
	case id < w.cur && r.Ends(w.cur-1)-a.ServerNow > a.Slack+2*a.ClockSlack+ClockStep:
		w.retreat(r, id, a.Now)
	case id == w.cur+1 && r.Ends(w.cur) > a.ServerNow:
		// What was not sent yet was admitted in the next period, or may have been. It counts there.
		pend := int64(0)
		if i, found := w.find(w.cur); found {
			pend = w.list[i].pend
		}
		w.list, w.cur = append(w.list[:0], bucket{id: id, counts: counts{pend: pend}}), id
	}
}

// read applies what Redis' clock showed at our time at, or shortly before, if the window uses a
// guess. The caller is about to replace the known units by buckets with Redis' IDs, so the IDs are
// right from now on, see rebase.
func (w *Window) read(r *arith.Rule, at, server int64) {
	if !w.sure {
		w.rebase(r, at, Clock{Off: server - at, Sure: true})
		w.moved = false
	}
}

// wentBack notes that Redis' clock was set back to a time. It may have been corrected since.
// Meanwhile, when a node booked, Redis may have merged the buckets ahead of its clock into another
// one. So a unit that is missing in its bucket is no sign of lost data.
func (w *Window) wentBack(r *arith.Rule, to int64) {
	for _, b := range w.list {
		w.moved = w.moved || b.known > 0 && r.Begins(b.id) > to
	}
}

// retreat goes back to a bucket. Units of later buckets then count in that one.
func (w *Window) retreat(r *arith.Rule, id, now int64) {
	w.cur, w.moved = id, true
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
// ns. So the earlier units of a bucket may count too long, but never too short. Under another calendar
// all units count in the current period, as in Redis. The caller must call sum.
func (w *Window) move(old, rule *arith.Rule, now, ahead int64) {
	w.cur = rule.Index(now + w.off)
	w.put(rule, func(b bucket) (id, last int64) {
		at := old.Begins(b.id) + b.last + ahead
		id = rule.Index(at)
		switch {
		case id >= w.cur, rule.Calendar != nil && old != rule:
			return w.cur, min(max(at-w.begins(rule), 0), int64(rule.Width))
		case w.cur-id > int64(rule.Kept) && old == rule:
			return w.cur - int64(rule.Kept), 0 // only a change of the rule expires units
		}
		return id, at - rule.Begins(id)
	})
}

// put moves each bucket to the ID that to returns, with the time of its last unit there.
func (w *Window) put(r *arith.Rule, to func(b bucket) (id, last int64)) {
	from := slices.Clone(w.list)
	w.list = w.list[:0]
	for _, b := range from {
		id, last := to(b)
		is := w.bucket(r, id)
		is.last = max(is.last, last)
		is.add(b.counts)
	}
}
