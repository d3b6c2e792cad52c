package algorithm

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Window counts units in buckets of a window. Index 0 is the current bucket,
// 1 the one before, up to the rule's Kept(); a bucket's ID is its number since
// the epoch of the authority's clock, which is ours plus off nanoseconds.
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
	off   int64 // authority's clock minus ours, at the most, ns
	sure  bool  // off was measured; false: it is a guess
	moved bool  // the window went back: until an answer the IDs of known are wrong
	late  bool  // pending units were handed back: until an answer the times in last may be too late

	// What a check reads and writes.
	cur       int64 // ID of bucket 0
	end       int64 // when bucket 0 ends, ns of the authority's clock
	newer     int64 // multiplied sum of all buckets that count in full
	oldest    int64 // multiplied units of the oldest bucket, which leaves
	pendUnits int64
	pend      []int64 // has spare capacity for Describe
	last      []int64 // when the last unit of a bucket came, ns after it began

	claim     int64 // units kept for a caller who waits
	sentUnits int64
	backUnits int64 // of back, without sentBack

	// known is nil before the first answer, and sent while nothing is under way.
	known, sent []int64
	*handed     // never nil; nothingHanded is replaced, not written to
}

// handed are units handed back: not reported yet, and reported.
type handed struct {
	back, sentBack []int64
}

// nothingHanded is the handed of all windows of which nothing was handed back.
var nothingHanded handed

// SmallWindow is a window of few buckets, in one allocation.
type SmallWindow struct {
	Window
	units, times [fewBuckets]int64 // of pend and last
}

// NewWindow returns an empty window, see [New].
func NewWindow(r *arith.Rule, now, off int64, sure bool) *Window {
	n := r.Kept + 1
	if n > fewBuckets {
		both := make([]int64, 2*n)
		w := &Window{pend: both[:n:n], last: both[n:]}
		w.begin(r, now, off, sure)
		return w
	}
	return new(SmallWindow).open(r, now, off, sure)
}

// open makes a new window of s. The rule must have few buckets.
func (s *SmallWindow) open(r *arith.Rule, now, off int64, sure bool) *Window {
	n := r.Kept + 1
	s.pend, s.last = s.units[:n:n], s.times[:n:n]
	s.begin(r, now, off, sure)
	return &s.Window
}

func (w *Window) begin(r *arith.Rule, now, off int64, sure bool) {
	w.off, w.sure, w.handed = off, sure, &nothingHanded
	w.cur = floorDiv(now+off, int64(r.Width))
	w.end = (w.cur + 1) * int64(r.Width)
}

// elapsed returns how much of the current bucket has passed at now. It stays
// within the bucket even if the clocks' offset has been corrected since.
func (w *Window) elapsed(r *arith.Rule, now int64) int64 {
	width := int64(r.Width)
	return min(max(now+w.off-(w.end-width), 0), width-1)
}

// Roll moves on to the bucket of now and returns the pending units that have
// outlived the window on the way.
func (w *Window) Roll(r *arith.Rule, now, multiplier int64) (expired int64) {
	if now+w.off < w.end {
		return 0
	}
	return w.advance(r, floorDiv(now+w.off, int64(r.Width)), multiplier)
}

// advance moves on to the bucket with the given ID, if it is a later one.
func (w *Window) advance(r *arith.Rule, id, multiplier int64) (expired int64) {
	k := id - w.cur
	if k <= 0 {
		return 0
	}
	before := w.pendUnits
	w.pendUnits -= shift(w.pend, k)
	w.backUnits -= shift(w.back, k)
	shift(w.sentBack, k)
	shift(w.known, k)
	shift(w.last, k)
	shift(w.sent, k) // sentUnits stays: they are under way and will be acknowledged
	w.cur, w.end = id, (id+1)*int64(r.Width)
	w.sum(r, multiplier)
	return before - w.pendUnits
}

// at returns what bucket i counts as with the multiplier of an unsynced unit. Units
// in back and sentBack had been known or sent before: they never come off those that
// are pending.
func (w *Window) at(i int, multiplier int64) int64 {
	n := int64(0)
	multiplier = max(multiplier, 1)
	if w.known != nil {
		n = w.known[i]
	}
	if w.sentBack != nil {
		n = max(n-w.sentBack[i], 0)
	}
	if w.sent != nil {
		n += Times(w.sent[i], multiplier)
	}
	if w.back != nil {
		n = max(n-w.back[i], 0)
	}
	return min(n+Times(w.pend[i], multiplier), MaxUnits)
}

// claimed returns what the claim counts as.
func (w *Window) claimed(r *arith.Rule, multiplier int64) int64 {
	return r.Multiplied(w.claim, max(multiplier, 1))
}

// sum recomputes the cached totals.
func (w *Window) sum(r *arith.Rule, multiplier int64) {
	full := len(w.pend)
	w.newer, w.oldest = w.claimed(r, multiplier), 0
	if r.Kept > 0 {
		full--
		w.oldest = w.at(full, multiplier)
	}
	for i := range full {
		w.newer = min(w.newer+w.at(i, multiplier), MaxUnits)
	}
}

// still returns what counts at now of so many units of the oldest bucket.
func (w *Window) still(r *arith.Rule, now, units int64) int64 {
	if units == 0 {
		return 0
	}
	return units - r.Gone(units, w.last[len(w.last)-1], w.elapsed(r, now))
}

// fits reports whether cost more units stay within the limit.
func (w *Window) fits(r *arith.Rule, now, cost int64) bool {
	room := r.Limit - w.newer - cost
	if room < 0 || w.oldest <= room {
		return room >= 0
	}
	return r.AreGone(w.oldest, w.oldest-room, w.last[len(w.last)-1], w.elapsed(r, now))
}

// FitsAt returns the time, on our clock, before which cost more units cannot fit,
// if they do not now. It is no later than the end of the current bucket.
func (w *Window) FitsAt(r *arith.Rule, _, cost int64) int64 {
	room := r.Limit - w.newer - cost
	if room < 0 || room >= w.oldest {
		return w.end - w.off
	}
	begin := w.end - int64(r.Width) - w.off
	return begin + r.GoneAt(w.oldest, w.oldest-room, w.last[len(w.last)-1])
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
	w.came(r, now)
	w.add(n, cost)
}

// add counts n units of the current bucket.
func (w *Window) add(n, cost int64) {
	w.pend[0] = min(w.pend[0]+n, MaxUnits)
	w.pendUnits = min(w.pendUnits+n, MaxUnits)
	w.newer = min(w.newer+max(cost, n), MaxUnits)
}

// came notes that a unit came at now, in the current bucket.
func (w *Window) came(r *arith.Rule, now int64) { w.last[0] = max(w.last[0], w.elapsed(r, now)) }

// Describe returns the whole answer to a check, see [Decider].
func (w *Window) Describe(r *arith.Rule, now, n, multiplier int64, allowed bool) limit.Result {
	var few [fewBuckets]int64
	counts := w.scratch(few[:0])
	for i := range w.pend {
		counts = append(counts, w.at(i, multiplier))
	}
	counts[0] = min(counts[0]+w.claimed(r, multiplier), MaxUnits)
	return decision.Window(r, allowed, n, max(multiplier, 1), counts, w.last, time.Duration(w.elapsed(r, now)))
}

// scratch returns room for a number per bucket: few if that is enough, else what is spare behind
// pend.
func (w *Window) scratch(few []int64) []int64 {
	n := len(w.pend)
	if n <= cap(few) {
		return few
	}
	w.pend = slices.Grow(w.pend, n)
	return w.pend[n:n]
}

// Usage reports whether any units count, and whether one more would be refused.
func (w *Window) Usage(r *arith.Rule, now int64) (used, denies bool) {
	return w.newer > 0 || w.oldest > 0, !w.fits(r, now, 1)
}

// Claim keeps n units for a caller who waits, see [Decider].
func (w *Window) Claim(r *arith.Rule, n, multiplier int64) (was int64) {
	was, w.claim = w.claim, n
	w.sum(r, multiplier)
	return was
}

// Set makes n units of the current bucket count instead of what was pending before.
func (w *Window) Set(r *arith.Rule, now, n int64) {
	clear(w.pend)
	w.came(r, now)
	w.pend[0], w.pendUnits = min(n, MaxUnits), min(n, MaxUnits)
	w.sum(r, 1)
}

// Spare returns how many units a lease may have: what fits now. It is 0 if the window does
// not use the offset of the authority's clock that is known.
func (w *Window) Spare(r *arith.Rule, last int64, clock Clock) int64 {
	if !w.sure || !clock.mayBe(w.off) {
		return 0
	}
	return r.Limit - w.newer - w.still(r, last, w.oldest)
}

// Lease returns when the current bucket ends. Until then units only leave the oldest bucket,
// so that what fits now goes on fitting.
func (w *Window) Lease(*arith.Rule, int64) (level arith.Span, until int64) {
	return level, w.end - w.off
}

// Spend counts n units that a lease has admitted. The current bucket is still that of the
// lease.
func (w *Window) Spend(r *arith.Rule, _, last, n int64, _ arith.Span) {
	w.came(r, last)
	w.add(n, n)
}

// Refund hands back n units, from the newest buckets, as far as there are so
// many in the window. It returns by how many fewer count now, which of units of the
// oldest bucket may be none, how many it has taken off, and how many of these will never
// be reported to the authority.
func (w *Window) Refund(r *arith.Rule, now, n, multiplier int64, _, _ arith.Span, _ bool) (back, taken, withdrawn int64) {
	if w.back == nil {
		w.handed = &handed{make([]int64, len(w.pend)), make([]int64, len(w.pend))}
	}
	for i := range w.pend {
		before := w.at(i, 1)
		k := min(n-taken, w.pend[i])
		w.pend[i] -= k
		withdrawn, taken = withdrawn+k, taken+k
		k = max(min(n-taken, w.at(i, 1)-w.pend[i]), 0)
		w.back[i] += k
		w.backUnits, taken = w.backUnits+k, taken+k
		if after := w.at(i, 1); i < r.Kept || r.Kept == 0 {
			back += before - after
		} else {
			back += w.still(r, now, before) - w.still(r, now, after)
		}
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
