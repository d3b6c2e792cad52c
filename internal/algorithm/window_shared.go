package algorithm

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
)

// Units returns the units that are not sent, and those that are sent and not acknowledged.
func (w *Window) Units() (pending, sent int64) { return w.pendUnits, w.sentUnits }

// Drained is false: Roll drops what has left the window.
func (w *Window) Drained(*arith.Rule, int64) bool { return false }

// Drain does nothing, see Drained.
func (w *Window) Drain(*arith.Rule, int64) int64 { return 0 }

// HasReturns reports whether units were handed back that are not acknowledged.
func (w *Window) HasReturns() bool {
	return w.backUnits > 0 || slices.ContainsFunc(w.sentBack, func(u int64) bool { return u > 0 })
}

// ReturnsAt reports whether units were handed back that are not sent.
func (w *Window) ReturnsAt(*arith.Rule, int64) bool { return w.backUnits > 0 }

// Sent returns what is sent, see [Exchanger].
func (w *Window) Sent(*arith.Rule, int64, int64) Sent {
	return Sent{Units: w.sentUnits, Buckets: w.list(w.sent), BackBuckets: w.list(w.sentBack)}
}

// KnownState returns what the authority has answered, nothing if its buckets are not known.
func (w *Window) KnownState(*arith.Rule, int64) (_ arith.Span, buckets []Bucket) {
	if !w.moved {
		buckets = w.list(w.known)
	}
	return arith.Span{}, buckets
}

// KnownUnits returns what is known, as far as it counts.
func (w *Window) KnownUnits(r *arith.Rule, now int64) (used int64) {
	for i, u := range w.known {
		if i == r.Kept && i > 0 {
			u = w.still(r, now, u)
		}
		used = min(used+u, MaxUnits)
	}
	return used
}

// FullUntil reports whether what is known fills the limit at now, and until when, see [Exchanger].
func (w *Window) FullUntil(r *arith.Rule, now int64) (until int64, full bool) {
	if w.known == nil || w.KnownUnits(r, now) < r.Limit {
		return 0, false
	}
	var few [fewBuckets]int64
	counts := append(w.scratch(few[:0]), w.known...)
	for i := range w.back {
		counts[i] = max(counts[i]-w.back[i]-w.sentBack[i], 0)
	}
	res := decision.Window(r, false, 1, 1, counts, w.last, time.Duration(w.elapsed(r, now)))
	return now + int64(res.RetryAfter), res.Remaining == 0
}

// Blank reports whether nothing that is known is in the window.
func (w *Window) Blank(int64) bool { return len(w.list(w.known)) == 0 }

// Forgive does nothing: a window has no debt.
func (w *Window) Forgive(*arith.Rule, int64) {}

// KeepSent counts what was sent as known, without an answer.
func (w *Window) KeepSent(r *arith.Rule, multiplier int64) {
	w.known = mergeBuckets(w.known, w.sent, func(a, b int64) int64 { return a + b })
	w.sent, w.sentUnits = nil, 0
	for i, u := range w.sentBack {
		if w.known == nil {
			break // nothing was under way
		}
		w.known[i] = max(w.known[i]-u, 0)
	}
	w.KeepSentBack(r, multiplier)
}

// KeepSentBack goes on counting units whose hand-back was sent.
func (w *Window) KeepSentBack(r *arith.Rule, multiplier int64) {
	clear(w.sentBack)
	w.sum(r, multiplier)
}

// DropSent forgets what was sent.
func (w *Window) DropSent(r *arith.Rule, multiplier int64) {
	w.forgetSent()
	w.KeepSentBack(r, multiplier)
}

// Collect moves what is pending to what is sent.
func (w *Window) Collect(*arith.Rule) {
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

// GiveBack undoes Collect, and returns the units that have expired meanwhile.
func (w *Window) GiveBack(*arith.Rule) (expired int64) {
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

// Renew sets the window to what the authority says of it after a reset. What
// is pending was admitted before that, and does not count any more. As in Settle the window
// moves on to the authority's bucket. Otherwise what counts in that would be taken for the
// bucket before, and leave the window with it.
func (w *Window) Renew(r *arith.Rule, a Answer, multiplier int64) (withdrawn int64) {
	w.read(r, a.At, a.ServerNow)
	w.late = false
	withdrawn = w.pendUnits
	clear(w.pend)
	clear(w.back)
	clear(w.sentBack)
	clear(w.last)
	w.pendUnits, w.backUnits = 0, 0
	w.advance(r, w.serverBucket(r, a), multiplier) // nothing is pending that could expire
	w.known = w.sorted(a.Buckets)
	w.noteTimes(a.Buckets)
	w.sum(r, multiplier)
	return withdrawn
}

// Settle takes over an answer, see [Exchanger]. In buckets narrower than the clocks can be
// compared, units come back in a neighbouring one: then nothing is lost.
func (w *Window) Settle(r *arith.Rule, a Answer, multiplier int64) (s Settled) {
	s.OtherClock = w.sure && a.Now+w.off-a.ServerNow > a.Slack+2*a.ClockSlack+ClockStep
	w.late = w.late && !a.Older // such an answer says nothing of what we know
	s.Lost, s.Earlier, s.Expired = w.settle(r, a.Buckets, w.serverBucket(r, a), a.Floor, multiplier)
	comparable := int64(r.Width) > a.Slack
	s.Lost = s.Lost && comparable
	s.Earlier = s.Earlier && comparable && r.Kept > 0 // a fixed window ends as a whole
	return s
}

// serverBucket returns the ID of the authority's bucket at the time of an answer. If that
// time is ahead of the authority's present clock, the answer was given before that clock was
// set back. To move the window there would be wrong: all that the authority counts from now
// on would be in older buckets.
func (w *Window) serverBucket(r *arith.Rule, a Answer) int64 {
	server := a.ServerNow
	if w.sure {
		server = min(server, a.Now+w.off+a.ClockSlack+ClockStep)
	}
	return floorDiv(server, int64(r.Width))
}

// settle takes over the buckets of the authority; serverCur is its current bucket.
// As with a leaky bucket, what we knew and had sent is a lower bound of the truth, if floor
// is set, and an answer below it is a sign of lost data.
func (w *Window) settle(r *arith.Rule, buckets []Bucket, serverCur int64, floor bool, multiplier int64) (lost, earlier bool, expired int64) {
	expired = w.advance(r, serverCur, multiplier)
	least := spareBuckets(len(w.pend))
	copy(least, w.known)
	for i, u := range w.sent {
		least[i] = min(least[i]+u, MaxUnits)
	}
	for i, u := range w.sentBack {
		least[i] = max(least[i]-u, 0)
	}
	clear(w.sentBack)
	moved := w.moved
	w.moved = false
	theirs := w.sorted(buckets)
	w.bookedEarlier(least, theirs)
	w.forgetSent()
	// Units that we sent ahead of the authority's clock are booked into its current
	// bucket. The comparison must do the same.
	joined := -1
	if ahead := min(w.cur-serverCur, int64(len(least)-1)); ahead > 0 {
		for i := range ahead {
			if least[i] > 0 {
				joined = int(ahead)
			}
			least[ahead] = min(least[ahead]+least[i], MaxUnits)
			least[i] = 0
		}
	}
	if !floor || moved || w.cur-serverCur >= int64(len(least)) { // a fixed window does not have that bucket any more
		clear(least)
	}
	for i, u := range theirs {
		switch {
		case u < least[i]:
			if lost = true; i == joined {
				w.last[i] = int64(r.Width) // when these came there is not known
			}
		case w.pend[i] == 0 && (least[i] == 0 || w.late || w.known == nil || w.known[i] == 0):
			w.last[i] = 0 // the authority knows better
		}
		// Otherwise what it has answered before counts: that there are as many units is no sign that
		// they are the same. It may have lost the last ones, and have been told of earlier ones since.
		theirs[i] = max(u, least[i])
	}
	w.late = false
	earlier = w.noteTimes(buckets)
	spareFor(least)
	w.known = theirs
	w.sum(r, multiplier)
	return lost, earlier, expired
}

// bookedEarlier moves units that were sent, which are part of least, to the bucket in which
// the authority has booked them: it books units ahead of its clock into its current bucket,
// and a batch that was sent again may have been booked long ago.
func (w *Window) bookedEarlier(least, theirs []int64) {
	for i, u := range w.sent {
		for k := i + 1; k < len(theirs) && u > 0 && least[i] > theirs[i]; k++ {
			if n := min(u, least[i]-theirs[i], theirs[k]-least[k]); n > 0 {
				least[i], least[k], u = least[i]-n, least[k]+n, u-n
			}
		}
	}
}

// SettleAlone takes off what was handed back, of a window that nothing is reported of.
func (w *Window) SettleAlone() {
	for i, u := range w.back {
		w.pend[i] = max(w.pend[i]-u, 0)
	}
	clear(w.back)
	w.backUnits = 0
}

// list returns the non-empty buckets of b in ascending order of ID.
func (w *Window) list(b []int64) []Bucket {
	var out []Bucket
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] > 0 {
			out = append(out, Bucket{ID: w.cur - int64(i), Units: b[i], Last: time.Duration(w.last[i])})
		}
	}
	return out
}

// sorted returns the units of a list by bucket. Buckets ahead of the current one, by a clock
// that was corrected since, count in the current one. They must not be reported under its
// ID, or the authority would count them twice: w.moved notes that.
func (w *Window) sorted(list []Bucket) []int64 {
	units := make([]int64, len(w.pend))
	for _, b := range list {
		w.moved = w.moved || b.ID > w.cur && b.Units > 0
		if i := max(w.cur-b.ID, 0); i < int64(len(units)) && b.Units > 0 {
			units[i] = min(units[i]+b.Units, MaxUnits)
		}
	}
	return units
}

// noteTimes takes over the times of the last units of a list. It reports whether one is earlier
// than what is known, although nothing is pending there.
func (w *Window) noteTimes(list []Bucket) (earlier bool) {
	for _, b := range list {
		if i := max(w.cur-b.ID, 0); i < int64(len(w.last)) && b.Units > 0 {
			earlier = earlier || b.ID <= w.cur && w.pend[i] == 0 && int64(b.Last) < w.last[i]
			w.last[i] = max(w.last[i], int64(b.Last))
		}
	}
	return earlier
}

// forgetSent forgets what is under way.
func (w *Window) forgetSent() {
	spareFor(w.sent)
	w.sent, w.sentUnits = nil, 0
}
