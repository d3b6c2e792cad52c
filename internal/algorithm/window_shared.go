package algorithm

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// Units returns the units that are not sent, and those that are sent and not acknowledged.
func (w *Window) Units() (pending, sent int64) { return w.pendUnits, w.sentUnits }

// HasReturns reports whether there are refunds that Redis has not acknowledged.
func (w *Window) HasReturns() bool {
	return slices.ContainsFunc(w.list, func(b bucket) bool { return b.back+b.sentBack > 0 })
}

// ReturnsAt reports whether there are refunds that were not sent.
func (w *Window) ReturnsAt(*arith.Rule, int64) bool {
	return slices.ContainsFunc(w.list, func(b bucket) bool { return b.back > 0 })
}

// Report writes what is sent, see [Replica].
func (w *Window) Report(_ *arith.Rule, _, _ int64, rep *report.Report) {
	rep.Units, rep.Buckets = w.sentUnits, w.units(func(b *bucket) int64 { return b.sent })
	rep.BackBuckets = w.units(func(b *bucket) int64 { return b.sentBack })
}

// KnownState returns what Redis has answered; nothing if the IDs of its buckets are not known.
func (w *Window) KnownState(*arith.Rule, int64) (_ arith.Span, buckets []report.Bucket) {
	if !w.moved {
		buckets = w.units(func(b *bucket) int64 { return b.known })
	}
	return arith.Span{}, buckets
}

// units returns, oldest first, the buckets for which of returns more than 0 units.
func (w *Window) units(of func(b *bucket) int64) (out []report.Bucket) {
	for i := range w.list {
		b := &w.list[i]
		if u := of(b); u > 0 {
			out = append(out, report.Bucket{ID: b.id, Units: u, Last: time.Duration(b.last)})
		}
	}
	return out
}

// KnownUnits returns how many of the known units count at now.
func (w *Window) KnownUnits(r *arith.Rule, now int64) (used int64) {
	for i := range w.list {
		b := &w.list[i]
		used = min(used+w.still(r, now, b, b.known), MaxUnits)
	}
	return used
}

// FullUntil reports whether the known units fill the limit at now, and until when, see [Replica].
func (w *Window) FullUntil(r *arith.Rule, now int64) (until int64, full bool) {
	if w.KnownUnits(r, now) < r.Limit {
		return 0, false
	}
	k := len(w.list)
	res := decision.Buckets(r, 1, 1, false, &decision.Window{Len: k, Elapsed: time.Duration(w.elapsed(r, now)), Bucket: func(i int) (age int, units, last int64) {
		b := &w.list[k-1-i]
		return int(w.cur - b.id), b.left(numbers{}), b.last
	}})
	return now + int64(res.RetryAfter), res.Remaining == 0
}

// Blank reports whether nothing that is known is in the window.
func (w *Window) Blank(int64) bool {
	return !slices.ContainsFunc(w.list, func(b bucket) bool { return b.known > 0 })
}

// KeepSent makes sent units known, without an answer.
func (w *Window) KeepSent(r *arith.Rule, multiplier int64) {
	for i := range w.list {
		w.list[i].keepSent(numbers{})
	}
	w.sentUnits = 0
	w.sum(r, multiplier)
}

// KeepSentBack drops the refunds that were sent: their units go on counting.
func (w *Window) KeepSentBack(r *arith.Rule, multiplier int64) {
	for i := range w.list {
		w.list[i].sentBack = 0
	}
	w.sum(r, multiplier)
}

// DropSent drops what was sent.
func (w *Window) DropSent(r *arith.Rule, multiplier int64) {
	for i := range w.list {
		w.list[i].dropSent()
	}
	w.sentUnits = 0
	w.sum(r, multiplier)
}

// Collect makes all pending units sent units.
func (w *Window) Collect(*arith.Rule) {
	for i := range w.list {
		w.list[i].collect(numbers{})
	}
	w.sentUnits, w.pendUnits = w.sentUnits+w.pendUnits, 0
}

// GiveBack undoes Collect, and returns the units that have expired in between.
func (w *Window) GiveBack(*arith.Rule) (expired int64) {
	expired, w.sentUnits = w.sentUnits, 0
	for i := range w.list {
		b := &w.list[i]
		expired, w.pendUnits = expired-b.sent, w.pendUnits+b.sent
		b.giveBack(numbers{})
	}
	return expired
}

// Renew sets the window to what Redis says of it after a reset. Pending units were admitted before
// the reset, and do not count any more. As in Settle, the window first moves on to Redis' current
// bucket. Otherwise units of that bucket would land in our previous one, and expire a bucket early.
func (w *Window) Renew(r *arith.Rule, a report.Answer, multiplier int64) (withdrawn int64) {
	w.read(r, a.At, a.ServerNow)
	w.agree(r, a)
	w.late, w.moved = false, false
	withdrawn, w.pendUnits = w.pendUnits, 0
	for i := range w.list {
		b := &w.list[i]
		*b = bucket{id: b.id, counts: counts{sent: b.sent}}
	}
	w.advance(r, w.serverBucket(r, a), multiplier) // nothing is pending that could expire
	w.take(r, a.Buckets)
	w.noteTimes(r, a.Buckets)
	w.sum(r, multiplier)
	return withdrawn
}

// Settle applies an answer, see [Replica]. If a bucket is shorter than the uncertainty of the
// clocks, units may come back in a neighbouring bucket: that is no lost data.
func (w *Window) Settle(r *arith.Rule, a report.Answer, multiplier int64) (s Settled) {
	s.OtherClock = w.sure && a.Now+w.off-a.ServerNow > a.Slack+2*a.ClockSlack+ClockStep
	w.agree(r, a)
	w.late = w.late && !a.Older // an answer of an older generation says nothing about the units that we know
	s.Lost, s.Earlier, s.Expired = w.settle(r, a, multiplier)
	comparable := int64(r.Width) > a.Slack
	s.Lost = s.Lost && comparable
	s.Earlier = s.Earlier && comparable && r.Kept > 0 // a fixed window ends as a whole
	return s
}

// serverBucket returns the ID of Redis' current bucket at the time of an answer. If that time is
// ahead of Redis' present clock, Redis answered before its clock was set back. To move the window
// there would be wrong: everything that Redis counts from now on would be in older buckets.
//
// A period of a calendar has begun if Redis counts in it, see [arith.Rule.Early].
func (w *Window) serverBucket(r *arith.Rule, a report.Answer) int64 {
	server := a.ServerNow
	if w.sure {
		server = min(server, a.Now+w.off+a.ClockSlack+ClockStep)
	}
	id := r.Index(server)
	if r.Early() > 0 && slices.ContainsFunc(a.Buckets, func(b report.Bucket) bool { return b.ID == id+1 && b.Units > 0 }) {
		id++
	}
	return id
}

// reckoning is what was known of a bucket before an answer: its known units, and how many Redis should
// have at least.
type reckoning struct{ knew, least int64 }

// settle applies the buckets of an answer.
func (w *Window) settle(r *arith.Rule, a report.Answer, multiplier int64) (lost, earlier bool, expired int64) {
	serverCur := w.serverBucket(r, a)
	expired = w.advance(r, serverCur, multiplier)
	moved, behind := w.moved, w.cur-serverCur // by how many buckets Redis is behind
	w.moved = false
	for _, b := range a.Buckets {
		if id, counts := w.place(r, b); counts {
			w.bucket(r, id)
		}
	}
	ahead := 0 < behind && behind <= int64(r.Kept) && len(w.list) > 0 && w.list[len(w.list)-1].id > serverCur
	if ahead {
		w.bucket(r, serverCur)
	}
	var few [arith.DefaultBuckets + 1]reckoning
	was := few[:]
	if len(w.list) > len(few) {
		was = make([]reckoning, len(w.list))
	}
	w.forgetKnown(was)
	w.take(r, a.Buckets) // from here on known is what Redis says
	w.bookedEarlier(was)
	joined := ahead && w.bookedAtPresent(was, serverCur)
	if !a.Floor || moved || behind > int64(r.Kept) { // a fixed window does not have Redis' bucket any more
		for i := range was {
			was[i].least = 0
		}
	}
	for i := range w.list {
		b, is := &w.list[i], was[i].least
		switch {
		case b.known < is:
			if lost = true; joined && b.id == serverCur {
				b.last = int64(r.Width) // the time of these units in Redis' bucket is not known
			}
		case b.pend == 0 && (is == 0 || w.late || was[i].knew == 0):
			b.last = 0 // use Redis' time
		}
		// Otherwise our lower bound stays. As many units as we know need not be the same units:
		// Redis may have lost the last ones, and received reports of earlier ones since.
		b.known = max(b.known, is)
	}
	w.late = false
	earlier = w.noteTimes(r, a.Buckets)
	w.DropSent(r, multiplier)
	w.shrink()
	return lost, earlier, expired
}

// forgetKnown clears the known units, and notes what was known.
func (w *Window) forgetKnown(was []reckoning) {
	for i := range w.list {
		b := &w.list[i]
		was[i] = reckoning{b.known, b.booked(numbers{}, 1)}
		b.known = 0
	}
}

// bookedEarlier moves units that were sent, which are part of least, to the bucket in which Redis
// has booked them. Redis books units ahead of its clock into its current bucket, and may have
// booked a repeated batch long ago.
func (w *Window) bookedEarlier(was []reckoning) {
	for i, b := range slices.Backward(w.list) {
		from, u := &was[i].least, b.sent
		for k := i - 1; k >= 0 && u > 0 && *from > b.known; k-- {
			to := &was[k].least
			if n := min(u, *from-b.known, w.list[k].known-*to); n > 0 {
				*from, *to, u = *from-n, *to+n, u-n
			}
		}
	}
}

// bookedAtPresent moves units that were sent ahead of Redis' clock to Redis' current bucket, into
// which Redis books them. It reports whether there are any.
func (w *Window) bookedAtPresent(was []reckoning, serverCur int64) (any bool) {
	present, _ := w.find(serverCur)
	for i := present + 1; i < len(w.list); i++ {
		if u := was[i].least; u > 0 {
			any = true
			was[present].least, was[i].least = min(was[present].least+u, MaxUnits), 0
		}
	}
	return any
}

// place returns the ID of the bucket in which a bucket of Redis counts, and whether it counts. A
// bucket ahead of the current one, by a clock that was corrected since, counts in the current one.
func (w *Window) place(r *arith.Rule, b report.Bucket) (id int64, counts bool) {
	return min(b.ID, w.cur), b.Units > 0 && b.ID >= w.cur-int64(r.Kept)
}

// take adds the units of a list to the known units. It sets w.moved if some are ahead of the
// current bucket: to report them under the ID of the current one would make Redis count them twice.
func (w *Window) take(r *arith.Rule, list []report.Bucket) {
	for _, b := range list {
		w.moved = w.moved || b.ID > w.cur && b.Units > 0
		if id, counts := w.place(r, b); counts {
			is := w.bucket(r, id)
			is.known = min(is.known+b.Units, MaxUnits)
		}
	}
}

// noteTimes applies the times of the last units in a list. It reports whether one is earlier than
// the known time, although nothing is pending in that bucket.
func (w *Window) noteTimes(r *arith.Rule, list []report.Bucket) (earlier bool) {
	for _, b := range list {
		if id, counts := w.place(r, b); counts {
			is := w.bucket(r, id)
			earlier = earlier || b.ID <= w.cur && is.pend == 0 && int64(b.Last) < is.last
			is.last = max(is.last, int64(b.Last))
		}
	}
	return earlier
}
