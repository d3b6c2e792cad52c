package algorithm

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Window counts units in buckets: the current one, and up to rule.Kept before it. A bucket's ID is
// its number since the epoch of Redis' clock, which is our clock plus off ns. Call Begin before
// use, and do not copy a Window.
//
// Each bucket of a shared window has parts, see parts. Units of several nodes add up.
//
// Each bucket also has the time of its last unit on any node (see [arith.Rule.Gone]). The time may
// be too late, for instance after a refund. The bucket then counts longer, never shorter.
type Window struct {
	off  int64    // Redis' clock minus ours, the largest possible value, ns
	cur  int64    // ID of the current bucket
	list []bucket // not empty; oldest first; none is later than cur or has left the window

	newer     int64 // sum, with multiplier, of all buckets that count in full, and of the claim
	pendUnits int64 // of all buckets
	sentUnits int64 // of all buckets, including those that have left the window since
	claim     int64 // units reserved for a waiting caller

	room       [1]bucket // initial array of list
	multiplier int32     // the one used for newer; at least 1
	sure       bool      // off was measured; false: a guess
	moved      bool      // the window went back: the IDs of known units are wrong until the next answer
	late       bool      // units were refunded: until an answer the times of last units may be too late
}

// Begin makes w, which must be zero, an empty window.
func (w *Window) Begin(r *arith.Rule, now int64, clock Clock) {
	w.off, w.sure, w.multiplier = clock.Off, clock.Sure, 1
	w.cur = r.Index(now + w.off)
	w.list = w.room[:0]
}

// begins and ends return when the current bucket begins and ends, in ns of Redis' clock.
func (w *Window) begins(r *arith.Rule) int64 { return r.Begins(w.cur) }
func (w *Window) ends(r *arith.Rule) int64   { return r.Ends(w.cur) }

// Later returns how long after the current bucket another one ends that comes so many after it.
func (w *Window) Later(r *arith.Rule, buckets int64) int64 {
	return r.Ends(w.cur+min(buckets, math.MaxInt32)) - w.ends(r)
}

// elapsed returns how much of the current bucket has passed at now, in ns, of a calendar's period as if
// it were Width long and ended when it does. The result stays within the bucket even if the offset of the
// clocks was corrected since.
func (w *Window) elapsed(r *arith.Rule, now int64) int64 {
	return min(max(now+w.off-w.begins(r), 0), int64(r.Width)-1)
}

// Roll moves on to the bucket of now and returns the pending units that have
// outlived the window on the way.
func (w *Window) Roll(r *arith.Rule, now, multiplier int64) (expired int64) {
	if now+w.off < w.ends(r) {
		return 0
	}
	return w.advance(r, r.Index(now+w.off), multiplier)
}

// advance moves on to the bucket with this ID, if it is later than the current one. sentUnits does
// not change: sent units of a bucket that leaves are in flight and will be acknowledged.
func (w *Window) advance(r *arith.Rule, id, multiplier int64) (expired int64) {
	if id <= w.cur {
		return 0
	}
	w.cur = id
	return w.sum(r, multiplier)
}

// leaving returns the oldest bucket of the window, whose units are expiring now; nil if it is
// empty.
func (w *Window) leaving(r *arith.Rule) *bucket {
	if r.Kept > 0 && len(w.list) > 0 && w.list[0].id == w.cur-int64(r.Kept) {
		return &w.list[0]
	}
	return nil
}

// oldest returns the oldest bucket of the window, and how many units it counts as.
func (w *Window) oldest(r *arith.Rule) (b *bucket, units int64) {
	if b = w.leaving(r); b != nil {
		units = b.count(int64(w.multiplier))
	}
	return b, units
}

// sum drops buckets, see tidy, and recomputes newer.
func (w *Window) sum(r *arith.Rule, multiplier int64) (expired int64) {
	expired = w.tidy(r)
	w.multiplier = int32(max(multiplier, 1))
	w.newer = r.Multiplied(w.claim, int64(w.multiplier))
	oldest := w.leaving(r)
	for i := range w.list {
		if b := &w.list[i]; b != oldest {
			w.newer = min(w.newer+b.count(int64(w.multiplier)), MaxUnits)
		}
	}
	return expired
}

// still returns how many of these units of a bucket count at now.
func (w *Window) still(r *arith.Rule, now int64, b *bucket, units int64) int64 {
	if units == 0 || b != w.leaving(r) {
		return units
	}
	return units - r.Gone(units, b.last, w.elapsed(r, now))
}

// Fits reports whether cost more units stay within the limit.
func (w *Window) Fits(r *arith.Rule, now, cost int64) bool {
	room := r.Limit - w.newer - cost
	if room < 0 {
		return false
	}
	b := w.leaving(r)
	if b == nil {
		return true
	}
	units := b.count(int64(w.multiplier))
	return units <= room || r.AreGone(units, units-room, b.last, w.elapsed(r, now))
}

// FitsAt returns the time, on our clock, before which cost more units cannot fit, if they do not
// fit now. It is no later than the end of the current bucket.
func (w *Window) FitsAt(r *arith.Rule, _, cost int64) int64 {
	room := r.Limit - w.newer - cost
	b, units := w.oldest(r)
	if room < 0 || room >= units {
		return w.ends(r) - w.off
	}
	return w.begins(r) - w.off + r.GoneAt(units, units-room, b.last)
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

// Describe returns the whole answer to a check, see [State].
func (w *Window) Describe(r *arith.Rule, now, n, multiplier int64, allowed bool) limit.Result {
	multiplier = max(multiplier, 1)
	claim, k := r.Multiplied(w.claim, multiplier), len(w.list)
	apart := 0
	if claim > 0 && (k == 0 || w.list[k-1].id != w.cur) {
		apart = 1 // the current bucket has no units, only the claim
	}
	return decision.Buckets(r, n, multiplier, allowed, &decision.Window{Len: k + apart, Elapsed: time.Duration(w.elapsed(r, now)), Bucket: func(i int) (age int, units, last int64) {
		if i < apart {
			return 0, claim, 0
		}
		b := &w.list[k-1-(i-apart)]
		if units = b.count(multiplier); b.id == w.cur {
			units = min(units+claim, MaxUnits)
		}
		return int(w.cur - b.id), units, b.last
	}})
}

// Usage reports whether any units count, and whether one more would be refused.
func (w *Window) Usage(r *arith.Rule, now int64) (used, denies bool) {
	_, oldest := w.oldest(r)
	return w.newer > 0 || oldest > 0, !w.Fits(r, now, 1)
}

// Claim reserves n units for a waiting caller, see [State].
func (w *Window) Claim(r *arith.Rule, n, multiplier int64) (was int64) {
	was, w.claim = w.claim, n
	w.sum(r, multiplier)
	return was
}

// Set replaces the pending units by n units in the current bucket.
func (w *Window) Set(r *arith.Rule, now, n int64) {
	for i := range w.list {
		w.list[i].pend = 0
	}
	w.pendUnits = 0
	w.Book(r, now, n, n, 1)
	w.sum(r, 1)
}

// Spare returns how many units a lease may have: what fits now. It is 0 if the window does not use
// the known offset of Redis' clock.
func (w *Window) Spare(r *arith.Rule, last int64, clock Clock) int64 {
	if !w.sure || !clock.mayBe(w.off) {
		return 0
	}
	b, units := w.oldest(r)
	return r.Limit - w.newer - w.still(r, last, b, units)
}

// Lease returns when the current bucket ends. Until then units leave only the oldest bucket, so
// what fits now fits until then.
func (w *Window) Lease(r *arith.Rule, _ int64) (level arith.Span, until int64) {
	return level, w.ends(r) - w.off
}

// Spend counts n units that a lease has admitted. The current bucket is still the same as at the
// grant.
func (w *Window) Spend(r *arith.Rule, _, last, n int64, _ arith.Span) { w.Book(r, last, n, n, 1) }

// Refund subtracts units, see [State], from the newest buckets first. Units of the oldest bucket may
// count only in part, so back may be less than taken.
func (w *Window) Refund(r *arith.Rule, now, multiplier int64, d Refund) (back, taken, withdrawn int64) {
	n := d.Units
	for i := len(w.list) - 1; i >= 0 && taken < n; i-- {
		b := &w.list[i]
		before := w.still(r, now, b, b.count(1))
		k := min(n-taken, b.pend)
		b.pend -= k
		withdrawn, taken = withdrawn+k, taken+k
		k = max(min(n-taken, b.count(1)-b.pend), 0)
		b.back, taken = min(b.back+k, MaxUnits), taken+k
		back += before - w.still(r, now, b, b.count(1))
	}
	w.pendUnits -= withdrawn
	w.late = w.late || withdrawn > 0
	w.sum(r, multiplier)
	return back, taken, withdrawn
}

// SetMultiplier sets how many units an unacknowledged unit counts as from now on.
func (w *Window) SetMultiplier(r *arith.Rule, _, _, is int64) { w.sum(r, is) }
