package table

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// window counts units in buckets of a window. Index 0 is the current bucket,
// 1 the one before, up to the rule's Kept(); a bucket's ID is its number since
// the epoch of the authority's clock, which is ours plus off nanoseconds.
//
// For a shared window three counts are kept per bucket: known (the authority's
// total), sent and pend (ours that it has not acknowledged). They add up,
// across nodes too, so that merging is a sum. Units that are handed back come
// off those that are pending in their bucket; the others are reported to the
// authority, and come off what it has told until it has answered.
//
// For each bucket it is known when its last unit came, on any node (see
// [limit.Rule.Gone]). The time may be too late, for instance after units were handed
// back, so that the bucket counts longer, but never too early.
type window struct {
	off   int64 // authority's clock minus ours, ns
	sure  bool  // off was measured; false: it is a guess
	moved bool  // the window went back: until an answer the IDs of known are wrong

	// What a check reads and writes.
	cur       int64 // ID of bucket 0
	end       int64 // when bucket 0 ends, ns of the authority's clock
	newer     int64 // weighted sum of all buckets that count in full
	oldest    int64 // weighted units of the oldest bucket, which leaves
	pendUnits int64
	pend      []int64 // has spare capacity for describe
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

// fewBuckets is the number of buckets of a window by default.
const fewBuckets = limit.DefaultBuckets + 1

// small is a window of few buckets, in one allocation.
type small struct {
	window
	units, times [fewBuckets]int64 // of pend and last
}

func newWindow(r *limit.Rule, now, off int64, sure bool) *window {
	n := r.Kept() + 1
	if n > fewBuckets {
		both := make([]int64, 2*n)
		w := &window{pend: both[:n:n], last: both[n:]}
		w.begin(r, now, off, sure)
		return w
	}
	return new(small).open(r, now, off, sure)
}

// open makes a new window of s. The rule must have few buckets.
func (s *small) open(r *limit.Rule, now, off int64, sure bool) *window {
	n := r.Kept() + 1
	s.pend, s.last = s.units[:n:n], s.times[:n:n]
	s.begin(r, now, off, sure)
	return &s.window
}

func (w *window) begin(r *limit.Rule, now, off int64, sure bool) {
	w.off, w.sure, w.handed = off, sure, &nothingHanded
	w.cur = floorDiv(now+off, int64(r.Width()))
	w.end = (w.cur + 1) * int64(r.Width())
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// elapsed returns how much of the current bucket has passed at now. It stays
// within the bucket even if the clocks' offset has been corrected since.
func (w *window) elapsed(r *limit.Rule, now int64) int64 {
	width := int64(r.Width())
	return min(max(now+w.off-(w.end-width), 0), width-1)
}

// roll moves on to the bucket of now and returns the pending units that have
// outlived the window on the way.
func (w *window) roll(r *limit.Rule, now, weight int64) (expired int64) {
	if now+w.off < w.end {
		return 0
	}
	return w.advance(r, floorDiv(now+w.off, int64(r.Width())), weight)
}

// advance moves on to the bucket with the given ID, if it is a later one.
func (w *window) advance(r *limit.Rule, id, weight int64) (expired int64) {
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
	w.cur, w.end = id, (id+1)*int64(r.Width())
	w.sum(r, weight)
	return before - w.pendUnits
}

// at returns what bucket i counts as when an unsynced unit weighs weight. Units
// in back and sentBack had been told or sent before: they never come off those that
// are pending.
func (w *window) at(i int, weight int64) int64 {
	n := int64(0)
	weight = max(weight, 1)
	if w.known != nil {
		n = w.known[i]
	}
	if w.sentBack != nil {
		n = max(n-w.sentBack[i], 0)
	}
	if w.sent != nil {
		n += satMul(w.sent[i], weight)
	}
	if w.back != nil {
		n = max(n-w.back[i], 0)
	}
	return min(n+satMul(w.pend[i], weight), maxPart)
}

// claimed returns what the claim counts as.
func (w *window) claimed(r *limit.Rule, weight int64) int64 { return r.Weigh(w.claim, max(weight, 1)) }

// sum recomputes the cached totals.
func (w *window) sum(r *limit.Rule, weight int64) {
	full := len(w.pend)
	w.newer, w.oldest = w.claimed(r, weight), 0
	if r.Kept() > 0 {
		full--
		w.oldest = w.at(full, weight)
	}
	for i := range full {
		w.newer = min(w.newer+w.at(i, weight), maxPart)
	}
}

// still returns what counts at now of so many units of the oldest bucket.
func (w *window) still(r *limit.Rule, now, units int64) int64 {
	if units == 0 {
		return 0
	}
	return units - r.Gone(units, w.last[len(w.last)-1], w.elapsed(r, now))
}

// fits reports whether cost more units stay within the limit.
func (w *window) fits(r *limit.Rule, now, cost int64) bool {
	room := r.Limit() - w.newer - cost
	if room < 0 || w.oldest <= room {
		return room >= 0
	}
	return r.AreGone(w.oldest, w.oldest-room, w.last[len(w.last)-1], w.elapsed(r, now))
}

// fitsAt returns the time, on our clock, before which cost more units cannot fit,
// if they do not now. It is no later than the end of the current bucket.
func (w *window) fitsAt(r *limit.Rule, cost int64) int64 {
	room := r.Limit() - w.newer - cost
	if room < 0 || room >= w.oldest {
		return w.end - w.off
	}
	begin := w.end - int64(r.Width()) - w.off
	return begin + r.GoneAt(w.oldest, w.oldest-room, w.last[len(w.last)-1])
}

// take admits n units, which weigh cost units in the view, or refuses them.
// A cost of 0 is the open policy: nothing is refused.
func (w *window) take(r *limit.Rule, now, n, cost int64, book bool) bool {
	if cost > 0 && !w.fits(r, now, cost) {
		return false
	}
	if book {
		w.book(r, now, n, cost)
	}
	return true
}

// book counts n units that came at now, whether they fit or not.
func (w *window) book(r *limit.Rule, now, n, cost int64) {
	w.came(r, now)
	w.add(n, cost)
}

// add counts n units of the current bucket.
func (w *window) add(n, cost int64) {
	w.pend[0] = min(w.pend[0]+n, maxPart)
	w.pendUnits = min(w.pendUnits+n, maxPart)
	w.newer = min(w.newer+max(cost, n), maxPart)
}

// came notes that a unit came at now, in the current bucket.
func (w *window) came(r *limit.Rule, now int64) { w.last[0] = max(w.last[0], w.elapsed(r, now)) }

func (w *window) describe(r *limit.Rule, now, n, weight int64, allowed bool) limit.Result {
	var few [fewBuckets]int64
	counts := few[:0]
	if n := len(w.pend); n > len(few) {
		w.pend = slices.Grow(w.pend, n)
		counts = w.pend[n:n]
	}
	for i := range w.pend {
		counts = append(counts, w.at(i, weight))
	}
	counts[0] = min(counts[0]+w.claimed(r, weight), maxPart)
	return r.WindowResult(allowed, n, max(weight, 1), counts, w.last, time.Duration(w.elapsed(r, now)))
}

// collect moves what is pending to what is sent.
func (w *window) collect() {
	if w.sent == nil {
		w.sent = spareBuckets(len(w.pend))
	}
	for i, u := range w.pend {
		w.sent[i] += u
	}
	clear(w.pend)
	w.sentUnits += w.pendUnits
	w.pendUnits = 0
	for i, u := range w.back {
		w.sentBack[i] += u
	}
	clear(w.back)
	w.backUnits = 0
}

// giveBack undoes collect, and returns the units that have expired meanwhile.
func (w *window) giveBack() (expired int64) {
	expired = w.sentUnits
	for i, u := range w.sent {
		w.pend[i] += u
		w.pendUnits += u
		expired -= u
	}
	w.forgetSent()
	for i, u := range w.sentBack {
		w.back[i] += u
		w.backUnits += u
	}
	clear(w.sentBack)
	return expired
}

// refund hands back n units, from the newest buckets, as far as there are so
// many in the window. It returns how many, and how many of these will never be
// reported to the authority.
func (w *window) refund(r *limit.Rule, n, weight int64) (back, withdrawn int64) {
	if w.back == nil {
		w.handed = &handed{make([]int64, len(w.pend)), make([]int64, len(w.pend))}
	}
	for i := range w.pend {
		k := min(n-back, w.pend[i])
		w.pend[i] -= k
		withdrawn, back = withdrawn+k, back+k
		k = max(min(n-back, w.at(i, 1)-w.pend[i]), 0)
		w.back[i] += k
		w.backUnits, back = w.backUnits+k, back+k
	}
	w.pendUnits -= withdrawn
	w.sum(r, weight)
	return back, withdrawn
}

// renew sets the window to what the authority says of it after a reset. What
// is pending was admitted before that, and does not count any more.
func (w *window) renew(r *limit.Rule, buckets []Bucket, weight int64) (withdrawn int64) {
	withdrawn = w.pendUnits
	clear(w.pend)
	clear(w.back)
	clear(w.sentBack)
	clear(w.last)
	w.pendUnits, w.backUnits = 0, 0
	w.known = w.sorted(buckets)
	w.hear(buckets)
	w.sum(r, weight)
	return withdrawn
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
func (w *window) rebase(r *limit.Rule, now, off, slack int64) (moved bool) {
	width, ahead := int64(r.Width()), off-w.off
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
// if the window uses a guess. It is about to be told all that counts, in buckets with the
// IDs of the authority: from now on the IDs are right, see rebase.
func (w *window) read(r *limit.Rule, at, server int64) {
	if !w.sure {
		w.rebase(r, at, server-at, 0)
		w.moved = false
	}
}

// wentBack notes that the authority's clock was set back to some time. It may have been put
// right since. Buckets that lay ahead meanwhile may have been merged into another one when
// nodes booked. So a unit that is missing in its bucket is no sign of lost data.
func (w *window) wentBack(r *limit.Rule, to int64) {
	begin := w.end - int64(r.Width())
	for i, u := range w.known {
		w.moved = w.moved || u > 0 && begin-int64(i)*int64(r.Width()) > to
	}
}

// retreat goes back to the bucket of now. What lies ahead counts in that.
func (w *window) retreat(r *limit.Rule, now int64) {
	width := int64(r.Width())
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

// settle takes over the buckets of the authority; serverCur is its current bucket.
// As with a funnel, what we knew and had sent is a lower bound of the truth, if floor
// is set, and an answer below it is a sign of lost data.
func (w *window) settle(r *limit.Rule, buckets []Bucket, serverCur int64, floor bool, weight int64) (lost bool, expired int64) {
	expired = w.advance(r, serverCur, weight)
	least := w.known
	if least == nil {
		least = make([]int64, len(w.pend))
	}
	for i, u := range w.sent {
		least[i] = min(least[i]+u, maxPart)
	}
	for i, u := range w.sentBack {
		least[i] = max(least[i]-u, 0)
	}
	clear(w.sentBack)
	moved := w.moved
	w.moved = false
	told := w.sorted(buckets)
	w.bookedEarlier(least, told)
	w.forgetSent()
	// Units that we sent ahead of the authority's clock are booked into its current
	// bucket. The comparison must do the same.
	if ahead := min(w.cur-serverCur, int64(len(least)-1)); ahead > 0 {
		for i := range ahead {
			if least[i] > 0 {
				w.last[ahead] = int64(r.Width()) // at the end of that
			}
			least[ahead] = min(least[ahead]+least[i], maxPart)
			least[i] = 0
		}
	}
	if !floor || moved {
		clear(least)
	}
	for i, u := range told {
		lost = lost || u < least[i]
		if u >= least[i] && w.pend[i] == 0 {
			w.last[i] = 0 // the authority knows better: units may have been handed back
		}
		told[i] = max(u, least[i])
	}
	w.hear(buckets)
	w.known = told
	w.sum(r, weight)
	return lost, expired
}

// bookedEarlier moves units that were sent, which are part of least, to the bucket in which
// the authority has booked them: it books units ahead of its clock into its current bucket,
// and a batch that was sent again may have been booked long ago.
func (w *window) bookedEarlier(least, told []int64) {
	for i, u := range w.sent {
		for k := i + 1; k < len(told) && u > 0 && least[i] > told[i]; k++ {
			if n := min(u, least[i]-told[i], told[k]-least[k]); n > 0 {
				least[i], least[k], u = least[i]-n, least[k]+n, u-n
			}
		}
	}
}

// reshape re-expresses the window in the buckets of another rule.
func (w *window) reshape(old, rule *limit.Rule, now, weight int64) (expired int64) {
	before := w.pendUnits
	w.move(old, rule, now, 0)
	w.sum(rule, weight)
	return before - w.pendUnits
}

// move replaces the window by one of another rule at now, with the same units. Each bucket
// goes into the bucket in which its last unit lies, after that is moved ahead by so many ns.
// The earlier units of a bucket may count too long after that, never too short.
func (w *window) move(old, rule *limit.Rule, now, ahead int64) {
	is := newWindow(rule, now, w.off, w.sure)
	n, width := int64(len(is.pend)), int64(rule.Width())
	// to returns where bucket i goes, and when its last unit came there.
	to := func(i int) (age, last int64) {
		at := (w.cur-int64(i))*int64(old.Width()) + w.last[i] + ahead
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
			moved[age], total = min(moved[age]+u, maxPart), total+u
			is.last[age] = max(is.last[age], last)
		}
		return moved, total
	}
	is.sentUnits, is.moved, is.claim = w.sentUnits, w.moved, w.claim
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

// settleAlone takes off what was handed back, of a window that nothing is reported of.
func (w *window) settleAlone() {
	for i, u := range w.back {
		w.pend[i] = max(w.pend[i]-u, 0)
	}
	clear(w.back)
	w.backUnits = 0
}
