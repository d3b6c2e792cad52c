package algorithm

import (
	"cmp"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// bucket is a bucket of a window that is not empty.
type bucket struct {
	id    int64 // see [report.Bucket]
	last  int64 // when the last unit came, ns after the bucket began
	known int64 // Redis' total
	sent  int64 // our units that were sent to Redis and are not acknowledged
	pend  int64 // our units that were not sent yet

	// Refunds of known and sent units. Those of pending ones are subtracted at once.
	back     int64 // units that were not reported yet
	sentBack int64 // units that were reported and are not acknowledged
}

// count returns how many units b counts as, with this multiplier for unacknowledged units. Refunds
// are never subtracted from pending units.
func (b *bucket) count(multiplier int64) int64 {
	if multiplier == 1 && b.back+b.sentBack == 0 {
		return b.known + b.sent + b.pend // short enough to be inlined
	}
	return b.multiplied(multiplier)
}

// multiplied is count for any multiplier.
func (b *bucket) multiplied(multiplier int64) int64 {
	n := max(b.known-b.sentBack, 0) + Times(b.sent, multiplier)
	return min(max(n-b.back, 0)+Times(b.pend, multiplier), MaxUnits)
}

// booked returns the total that Redis should have once it has booked what was sent.
func (b *bucket) booked() int64 { return max(min(b.known+b.sent, MaxUnits)-b.sentBack, 0) }

// find returns the index of a bucket, or where it would be.
func (w *Window) find(id int64) (i int, found bool) {
	return slices.BinarySearchFunc(w.list, id, func(b bucket, id int64) int { return cmp.Compare(b.id, id) })
}

// bucket returns the bucket with this ID. It adds an empty one if there is none. The pointer is
// valid until another is added.
func (w *Window) bucket(r *arith.Rule, id int64) *bucket {
	i := len(w.list) - 1
	if i < 0 || w.list[i].id != id { // usually it is the newest
		found := false
		if i, found = w.find(id); !found {
			w.insert(r, i, id)
		}
	}
	return &w.list[i]
}

// insert adds an empty bucket at index i. A Window has built-in room for one, which is enough for
// most keys. Room for more is allocated, and kept.
func (w *Window) insert(r *arith.Rule, i int, id int64) {
	if n := len(w.list); n == cap(w.list) {
		w.list = append(make([]bucket, 0, max(n+1, min(2*n, r.Kept+1))), w.list...)
	}
	w.list = slices.Insert(w.list, i, bucket{id: id})
}

// tidy drops buckets that are empty or have left the window. It returns the pending units
// among them.
func (w *Window) tidy(r *arith.Rule) (expired int64) {
	oldest := w.cur - int64(r.Kept)
	w.list = slices.DeleteFunc(w.list, func(b bucket) bool {
		if b.id < oldest {
			expired += b.pend
		}
		return b.id < oldest || b.known+b.sent+b.pend+b.back+b.sentBack == 0
	})
	w.pendUnits -= expired
	return expired
}

// shrink frees the allocated list if the built-in room is enough again.
func (w *Window) shrink() {
	if len(w.list) <= len(w.room) && cap(w.list) > len(w.room) {
		w.list = append(w.room[:0], w.list...)
	}
}
