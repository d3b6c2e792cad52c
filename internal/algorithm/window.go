package algorithm

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Window counts units in buckets of a window: the current one, and up to the rule's Kept()
// before it. A bucket's ID is its number since the epoch of the authority's clock, which is
// ours plus off nanoseconds. Begin it before use, and do not copy it.
//
// For a shared window three counts are kept per bucket: known (the authority's
// total), sent and pend (ours that it has not acknowledged). They add up,
// across nodes too, so that merging is a sum. Units that are handed back come
// off those that are pending in their bucket; the others are reported to the
// authority, and come off what is known until it has answered.
//
// For each bucket it is known when its last unit came, on any node (see
// [arith.Rule.Gone]). The time may be too late, for instance after units were handed
// back, so that the bucket counts longer, but never too early.
type Window struct {
	off  int64    // authority's clock minus ours, at the most, ns
	cur  int64    // ID of the current bucket
	list []bucket // that are not empty, the oldest first; none is after cur, or has left the window

	newer     int64   // multiplied sum of all buckets that count in full, and the claim
	pendUnits int64   // of all buckets
	sentUnits int64   // of all buckets, and of those that have left the window meanwhile
	handed    *handed // nil: nothing

	room       [1]bucket // the first room of list
	multiplier int32     // of newer; at least 1
	sure       bool      // off was measured; false: it is a guess
	heard      bool      // of the authority; false: nothing is known
	moved      bool      // the window went back: until an answer the IDs of known are wrong
	late       bool      // pending units were handed back: until an answer the times of last units may be too late
}

// Begin makes w, which must be zero, an empty window. off is how far the authority's clock is
// ahead; sure: that was measured.
func (w *Window) Begin(r *arith.Rule, now, off int64, sure bool) {
	w.off, w.sure, w.multiplier = off, sure, 1
	w.cur = floorDiv(now+off, int64(r.Width))
	w.list = w.room[:0]
}

// begins returns when the current bucket begins, and ends when it ends, in ns of the
// authority's clock.
func (w *Window) begins(r *arith.Rule) int64 { return w.cur * int64(r.Width) }
func (w *Window) ends(r *arith.Rule) int64   { return (w.cur + 1) * int64(r.Width) }

// elapsed returns how much of the current bucket has passed at now. It stays
// within the bucket even if the clocks' offset has been corrected since.
func (w *Window) elapsed(r *arith.Rule, now int64) int64 {
	return min(max(now+w.off-w.begins(r), 0), int64(r.Width)-1)
}

// Roll moves on to the bucket of now and returns the pending units that have
// outlived the window on the way.
func (w *Window) Roll(r *arith.Rule, now, multiplier int64) (expired int64) {
	if now+w.off < w.ends(r) {
		return 0
	}
	return w.advance(r, floorDiv(now+w.off, int64(r.Width)), multiplier)
}

// advance moves on to the bucket with the given ID, if it is a later one. sentUnits stays: what
// leaves the window is under way and will be acknowledged.
func (w *Window) advance(r *arith.Rule, id, multiplier int64) (expired int64) {
	if id <= w.cur {
		return 0
	}
	w.cur = id
	return w.sum(r, multiplier)
}

// at returns what a bucket counts as with the multiplier of an unsynced unit. Units that were
// handed back had been known or sent before: they never come off those that are pending.
func (w *Window) at(b *bucket, multiplier int64) int64 {
	if multiplier == 1 && w.handed == nil {
		return b.known + b.sent + b.pend // this much is inlined
	}
	return w.multiplied(b, multiplier)
}

// multiplied is at for any multiplier.
func (w *Window) multiplied(b *bucket, multiplier int64) int64 {
	h := w.handed.of(b.id)
	n := max(b.known-h.sent, 0) + Times(b.sent, multiplier)
	return min(max(n-h.back, 0)+Times(b.pend, multiplier), MaxUnits)
}

// claimed returns what the claim counts as.
func (w *Window) claimed(r *arith.Rule, multiplier int64) int64 {
	if w.handed == nil {
		return 0
	}
	return r.Multiplied(w.handed.claim, multiplier)
}

// leaving returns the oldest bucket of the window, which leaves it. nil: it is empty.
func (w *Window) leaving(r *arith.Rule) *bucket {
	if r.Kept > 0 && len(w.list) > 0 && w.list[0].id == w.cur-int64(r.Kept) {
		return &w.list[0]
	}
	return nil
}

// oldest returns the oldest bucket of the window, and what it counts as.
func (w *Window) oldest(r *arith.Rule) (b *bucket, units int64) {
	if b = w.leaving(r); b != nil {
		units = w.at(b, int64(w.multiplier))
	}
	return b, units
}

// sum drops buckets, see tidy, and recomputes newer.
func (w *Window) sum(r *arith.Rule, multiplier int64) (expired int64) {
	expired = w.tidy(r)
	w.multiplier = int32(max(multiplier, 1))
	w.newer = w.claimed(r, int64(w.multiplier))
	oldest := w.leaving(r)
	for i := range w.list {
		if b := &w.list[i]; b != oldest {
			w.newer = min(w.newer+w.at(b, int64(w.multiplier)), MaxUnits)
		}
	}
	return expired
}

// still returns what counts at now of so many units of a bucket.
func (w *Window) still(r *arith.Rule, now int64, b *bucket, units int64) int64 {
	if units == 0 || b != w.leaving(r) {
		return units
	}
	return units - r.Gone(units, b.last, w.elapsed(r, now))
}

// fits reports whether cost more units stay within the limit.
func (w *Window) fits(r *arith.Rule, now, cost int64) bool {
	room := r.Limit - w.newer - cost
	if room < 0 {
		return false
	}
	b := w.leaving(r)
	if b == nil {
		return true
	}
	units := w.at(b, int64(w.multiplier))
	return units <= room || r.AreGone(units, units-room, b.last, w.elapsed(r, now))
}

// FitsAt returns the time, on our clock, before which cost more units cannot fit,
// if they do not now. It is no later than the end of the current bucket.
func (w *Window) FitsAt(r *arith.Rule, _, cost int64) int64 {
	room := r.Limit - w.newer - cost
	b, units := w.oldest(r)
	if room < 0 || room >= units {
		return w.ends(r) - w.off
	}
	return w.begins(r) - w.off + r.GoneAt(units, units-room, b.last)
}

// Take admits n units, which count as cost units in the view, or refuses them.
// A cost of 0 is the open policy: nothing is refused.
func (w *Window) Take(r *arith.Rule, now, n, cost, multiplier int64, book bool) bool {
	if cost > 0 && !w.fits(r, now, cost) {
		return false
	}
	if book {
		w.Book(r, now, n, cost, multiplier)
	}
	return true
}

// Book counts n units that came at now, whether they fit or not.
func (w *Window) Book(r *arith.Rule, now, n, cost, _ int64) {
	if n == 0 {
		return
	}
	b := w.bucket(r, w.cur)
	b.last = max(b.last, w.elapsed(r, now))
	b.pend = min(b.pend+n, MaxUnits)
	w.pendUnits = min(w.pendUnits+n, MaxUnits)
	w.newer = min(w.newer+max(cost, n), MaxUnits)
}

// Describe returns the whole answer to a check, see [Decider].
func (w *Window) Describe(r *arith.Rule, now, n, multiplier int64, allowed bool) limit.Result {
	multiplier = max(multiplier, 1)
	claim, k := w.claimed(r, multiplier), len(w.list)
	apart := 0
	if claim > 0 && (k == 0 || w.list[k-1].id != w.cur) {
		apart = 1 // the current bucket has but the claim
	}
	return decision.Buckets(r, allowed, n, multiplier, k+apart, func(i int) (age int, units, last int64) {
		if i < apart {
			return 0, claim, 0
		}
		b := &w.list[k-1-(i-apart)]
		if units = w.at(b, multiplier); b.id == w.cur {
			units = min(units+claim, MaxUnits)
		}
		return int(w.cur - b.id), units, b.last
	}, time.Duration(w.elapsed(r, now)))
}

// Usage reports whether any units count, and whether one more would be refused.
func (w *Window) Usage(r *arith.Rule, now int64) (used, denies bool) {
	_, oldest := w.oldest(r)
	return w.newer > 0 || oldest > 0, !w.fits(r, now, 1)
}

// Claim keeps n units for a caller who waits, see [Decider].
func (w *Window) Claim(r *arith.Rule, n, multiplier int64) (was int64) {
	if w.handed == nil && n > 0 {
		w.handed = new(handed)
	}
	if w.handed != nil {
		was, w.handed.claim = w.handed.claim, n
	}
	w.sum(r, multiplier)
	return was
}

// Set makes n units of the current bucket count instead of what was pending before.
func (w *Window) Set(r *arith.Rule, now, n int64) {
	for i := range w.list {
		w.list[i].pend = 0
	}
	w.pendUnits = 0
	w.Book(r, now, n, n, 1)
	w.sum(r, 1)
}

// Spare returns how many units a lease may have: what fits now. It is 0 if the window does
// not use the offset of the authority's clock that is known.
func (w *Window) Spare(r *arith.Rule, last int64, clock Clock) int64 {
	if !w.sure || !clock.mayBe(w.off) {
		return 0
	}
	b, units := w.oldest(r)
	return r.Limit - w.newer - w.still(r, last, b, units)
}

// Lease returns when the current bucket ends. Until then units only leave the oldest bucket,
// so that what fits now goes on fitting.
func (w *Window) Lease(r *arith.Rule, _ int64) (level arith.Span, until int64) {
	return level, w.ends(r) - w.off
}

// Spend counts n units that a lease has admitted. The current bucket is still that of the
// lease.
func (w *Window) Spend(r *arith.Rule, _, last, n int64, _ arith.Span) { w.Book(r, last, n, n, 1) }

// Refund hands back n units, from the newest buckets, as far as there are so
// many in the window. It returns by how many fewer count now, which of units of the
// oldest bucket may be none, how many it has taken off, and how many of these will never
// be reported to the authority.
func (w *Window) Refund(r *arith.Rule, now, n, multiplier int64, _, _ arith.Span, _ bool) (back, taken, withdrawn int64) {
	for i := len(w.list) - 1; i >= 0 && taken < n; i-- {
		b := &w.list[i]
		before := w.still(r, now, b, w.at(b, 1))
		k := min(n-taken, b.pend)
		b.pend -= k
		withdrawn, taken = withdrawn+k, taken+k
		k = max(min(n-taken, w.at(b, 1)-b.pend), 0)
		w.handBack(returned{id: b.id, back: k})
		taken += k
		back += before - w.still(r, now, b, w.at(b, 1))
	}
	w.pendUnits -= withdrawn
	w.late = w.late || withdrawn > 0
	w.sum(r, multiplier)
	return back, taken, withdrawn
}

// SetMultiplier lets unsynced units count is-fold from now on.
func (w *Window) SetMultiplier(r *arith.Rule, _, _, is int64) { w.sum(r, is) }

// Raised counts all units in full, as a new bucket does.
func (w *Window) Raised(r *arith.Rule, _, multiplier int64) { w.sum(r, multiplier) }
