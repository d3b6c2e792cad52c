package local

import (
	"sync"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A window of the usual size takes twice the memory of all else that a counter has. But of a million keys
// few are busy: the others have units in one bucket alone, and nothing under way. Such a
// window is folded: it has room where a counter of another rule has its funnel. It is
// unfolded by whoever wants to know of it, and folded where keys come that nobody may ask
// for a second time: after their first check in an epoch of the table, and when the
// authority has answered; who looks only whether it can be forgotten folds it again.
//
// A folded window has, in the funnel: as units that are pending those of its bucket; as
// known what the authority has told of that; in the view the ID of the current bucket
// and foldedBits; as the TAT of the pending units how far the authority's clock is ahead;
// as the rest of what is known when the bucket's last unit came.

// foldedAway is the more of a counter whose window is folded. It has nothing, which all who
// read it but win and with go by, and nobody writes to it.
var foldedAway more

// foldedBits are the rest of a folded window: at the bottom which bucket has units.
type foldedBits int64

const (
	foldedBucket foldedBits = 1<<8 - 1
	foldedSure   foldedBits = 1 << 8 // as in window
	foldedMoved  foldedBits = 1 << 9
	foldedTold   foldedBits = 1 << 10 // known is not nil
)

// piece is an unfolded window of few buckets with what most funnels do without.
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
	c.funnel.view = limit.Span{NS: floorDiv(now+off, int64(r.Width())), Rem: int64(bits)}
	c.funnel.pend.tat.NS = off
}

// unfold unfolds the window of c, which is folded, by the rule and the mode that it was
// folded by: who changes these unfolds it before, or sums up afterwards.
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
	if m == nil || m.piece == nil || *m != (more{window: m.window, piece: m.piece}) || c.slot.Load() != nil || !isFoldable(c.rule()) {
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
	f := funnel{view: limit.Span{NS: w.cur}, pend: part{units: w.pend[i], tat: limit.Span{NS: w.off}}}
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

// single returns the bucket that has all units of a window of which nothing is under
// way, and nothing was handed back that is still to be told. What was handed back is under
// way only together with what was sent, see collect.
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
	// What is booked at another weight may count as less than the sum will say.
	newer, oldest := w.at(i, weight), int64(0)
	if i > 0 && i == r.Kept() {
		newer, oldest = 0, newer
	}
	return i, w.pendUnits == w.pend[i] && w.newer == newer && w.oldest == oldest
}
