package algorithm

import (
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A window of the usual size takes twice the memory of the rest of its counter. But of a
// million keys most have units in one bucket alone, and nothing under way. Such a window can
// be folded: it is stored in the fields of a leaky bucket, which a counter has anyway.
//
// These then hold: Pend.Units, the pending units of the bucket; Known.NS, what the authority
// has answered of the bucket; Known.Rem, when its last unit came; View.NS, the ID of the current
// bucket; View.Rem, foldedBits; Pend.TAT.NS, how far the authority's clock is ahead.

// foldedBits are the rest of a folded window. The lowest are the index of the bucket that has
// units.
type foldedBits int64

const (
	foldedBucket foldedBits = 1<<8 - 1
	foldedSure   foldedBits = 1 << 8 // as in Window
	foldedMoved  foldedBits = 1 << 9
	foldedKnown  foldedBits = 1 << 10 // known is not nil
	foldedLate   foldedBits = 1 << 11 // as in Window
)

// IsFoldable reports whether windows of a rule can be folded: those of few buckets.
func IsFoldable(r *limit.Rule) bool { return IsWindow(r) && arith.Of(r.Arith()).Kept < fewBuckets }

// NewFolded returns an empty window, folded, see [New].
func NewFolded(r *arith.Rule, now, off int64, sure bool) (f LeakyBucket) {
	bits := foldedBits(0)
	if sure {
		bits = foldedSure
	}
	f.View = arith.Span{NS: floorDiv(now+off, int64(r.Width)), Rem: int64(bits)}
	f.Pend.TAT.NS = off
	return f
}

// Unfold makes s, which must be zero, the window that was folded into f. Rule and multiplier must
// be those that it was folded with.
func (s *SmallWindow) Unfold(f *LeakyBucket, r *arith.Rule, multiplier int64) {
	w, n, bits := &s.Window, r.Kept+1, foldedBits(f.View.Rem)
	i := bits & foldedBucket
	w.off, w.sure, w.moved, w.handed = f.Pend.TAT.NS, bits&foldedSure != 0, bits&foldedMoved != 0, &nothingHanded
	w.late = bits&foldedLate != 0
	w.cur, w.end = f.View.NS, (f.View.NS+1)*int64(r.Width)
	w.pend, w.last = s.units[:n:n], s.times[:n:n]
	w.last[i] = f.Known.Rem
	w.pend[i], w.pendUnits = f.Pend.Units, f.Pend.Units
	if bits&foldedKnown != 0 {
		w.known = spareBuckets(n)
		w.known[i] = f.Known.NS
	}
	w.sum(r, multiplier)
}

// Fold returns w, folded. ok is false if it cannot be folded. Otherwise w must not be used any
// more.
func (w *Window) Fold(r *arith.Rule, multiplier int64) (f LeakyBucket, ok bool) {
	if r.Kept >= fewBuckets {
		return f, false
	}
	i, ok := w.single(r, multiplier)
	if !ok {
		return f, false
	}
	bits := foldedBits(i)
	if w.sure {
		bits |= foldedSure
	}
	if w.moved {
		bits |= foldedMoved
	}
	if w.late {
		bits |= foldedLate
	}
	f = LeakyBucket{View: arith.Span{NS: w.cur}, Pend: Run{Units: w.pend[i], TAT: arith.Span{NS: w.off}}}
	f.Known.Rem = w.last[i]
	if w.known != nil {
		bits |= foldedKnown
		f.Known.NS = w.known[i]
		spareFor(w.known)
	}
	f.View.Rem = int64(bits)
	return f, true
}

// single returns the bucket that has all units of a window. It reports false if there is
// none, if something is under way, or if units were handed back that are not reported. Units
// that were handed back are under way only together with units that were sent, see Collect.
func (w *Window) single(r *arith.Rule, multiplier int64) (i int, ok bool) {
	if w.sent != nil || w.sentUnits != 0 || w.backUnits != 0 || w.claim != 0 {
		return 0, false
	}
	found := false
	for j, u := range w.pend {
		if u == 0 && (w.known == nil || w.known[j] == 0) {
			continue
		}
		if found {
			return 0, false
		}
		i, found = j, true
	}
	// Units that were booked at another multiplier may count as less than sum would say.
	newer, oldest := w.at(i, multiplier), int64(0)
	if i > 0 && i == r.Kept {
		newer, oldest = 0, newer
	}
	return i, w.pendUnits == w.pend[i] && w.newer == newer && w.oldest == oldest
}
