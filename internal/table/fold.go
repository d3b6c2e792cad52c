package table

import (
	"sync"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A window of the usual size takes twice the memory of the rest of its counter. But of a
// million keys most have units in one bucket alone, and nothing under way. Such a window is
// folded: it is stored in the fields where a counter of another rule has its funnel. All code
// that uses the window unfolds it. It is folded after the first check of a new counter,
// because many keys are asked once only, and when the authority has answered. Code that only
// looks whether a counter can be forgotten folds it again.
//
// The fields of the funnel then hold: pend.units, the pending units of the bucket; known.NS,
// what the authority has told of the bucket; known.Rem, when its last unit came; view.NS, the
// ID of the current bucket; view.Rem, foldedBits; pend.tat.NS, how far the authority's clock
// is ahead.

// foldedAway is the more of all counters whose window is folded. It stays empty: all code but
// win and with reads it as such, and no code writes to it.
var foldedAway more

// foldedBits are the rest of a folded window. The lowest are the index of the bucket that has
// units.
type foldedBits int64

const (
	foldedBucket foldedBits = 1<<8 - 1
	foldedSure   foldedBits = 1 << 8 // as in window
	foldedMoved  foldedBits = 1 << 9
	foldedTold   foldedBits = 1 << 10 // known is not nil
)

// piece is an unfolded window of few buckets, together with its more.
type piece struct {
	more  more
	small small
}

var sparePieces = sync.Pool{New: func() any { return new(piece) }}

// isFoldable reports whether windows of a rule can be folded: those of few buckets.
func isFoldable(r *limit.Rule) bool {
	a := r.Algorithm()
	return (a == limit.AlgorithmSlidingWindow || a == limit.AlgorithmFixedWindow) && r.Kept() < fewBuckets
}

func (c *Counter) isFolded() bool { return c.more == &foldedAway }

// beginFolded makes an empty window of c, folded.
func (c *Counter) beginFolded(r *limit.Rule, now, off int64, sure bool) {
	bits := foldedBits(0)
	if sure {
		bits = foldedSure
	}
	c.more = &foldedAway
	c.funnel.view = arith.Span{NS: floorDiv(now+off, int64(r.Width())), Rem: int64(bits)}
	c.funnel.pend.tat.NS = off
}

// unfold unfolds the window of c, which must be folded. Rule and mode must be those that it
// was folded with: code that changes them unfolds it before, or sums up afterwards.
func (c *Counter) unfold() *window {
	p, f, r := sparePieces.Get().(*piece), &c.funnel, c.rule()
	w, n, bits := &p.small.window, r.Kept()+1, foldedBits(f.view.Rem)
	i := bits & foldedBucket
	w.off, w.sure, w.moved, w.handed = f.pend.tat.NS, bits&foldedSure != 0, bits&foldedMoved != 0, &nothingHanded
	w.cur, w.end = f.view.NS, (f.view.NS+1)*int64(r.Width())
	w.pend, w.last = p.small.units[:n:n], p.small.times[:n:n]
	w.last[i] = f.known.Rem
	w.pend[i], w.pendUnits = f.pend.units, f.pend.units
	if bits&foldedTold != 0 {
		w.known = spareBuckets(n)
		w.known[i] = f.known.NS
	}
	w.sum(r, modeWeight(c.mode()))
	c.funnel = funnel{}
	p.more.window, p.more.piece = w, p
	c.more = &p.more
	return w
}

// foldLocked folds the window of c, if there is one that can be.
func (c *Counter) foldLocked() {
	m := c.more
	if m == nil || m.piece == nil || *m != (more{window: m.window, piece: m.piece}) || !isFoldable(c.rule()) {
		return
	}
	w := m.window
	i, ok := w.single(c.rule(), modeWeight(c.mode()))
	if !ok {
		return
	}
	bits := foldedBits(i)
	if w.sure {
		bits |= foldedSure
	}
	if w.moved {
		bits |= foldedMoved
	}
	f := funnel{view: arith.Span{NS: w.cur}, pend: part{units: w.pend[i], tat: arith.Span{NS: w.off}}}
	f.known.Rem = w.last[i]
	if w.known != nil {
		bits |= foldedTold
		f.known.NS = w.known[i]
		spareFor(w.known)
	}
	f.view.Rem = int64(bits)
	c.funnel, c.more = f, &foldedAway
	p := m.piece
	*p = piece{}
	sparePieces.Put(p)
}

// refoldLocked folds the window of c again if it was.
func (c *Counter) refoldLocked(was bool) {
	if was {
		c.foldLocked()
	}
}

// single returns the bucket that has all units of a window. It reports false if there is
// none, if something is under way, or if units were handed back that are not reported. Units
// that were handed back are under way only together with units that were sent, see collect.
func (w *window) single(r *limit.Rule, weight int64) (i int, ok bool) {
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
	// Units that were booked at another weight may count as less than sum would say.
	newer, oldest := w.at(i, weight), int64(0)
	if i > 0 && i == r.Kept() {
		newer, oldest = 0, newer
	}
	return i, w.pendUnits == w.pend[i] && w.newer == newer && w.oldest == oldest
}
