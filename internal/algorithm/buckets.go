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
}

// handed is what few windows need: refunds and a claim.
type handed struct {
	claim int64 // units reserved for a waiting caller
	list  []returned
}

// returned has the refunded units of a bucket: those not reported yet (back), and those reported
// and not acknowledged (sent).
type returned struct {
	id, back, sent int64
}

// find returns the index of a bucket, or where it would be.
func (w *Window) find(id int64) (i int, found bool) {
	n := int64(len(w.list))
	if n == 0 {
		return 0, false
	}
	// The list has at most one entry per ID, which bounds where id can be. If all buckets have
	// units, the range is a single entry.
	to := min(max(id-w.list[0].id+1, 0), n)
	from := min(max(id-w.list[n-1].id+n-1, 0), to)
	if from < to && w.list[from].id == id {
		return int(from), true
	}
	i, found = slices.BinarySearchFunc(w.list[from:to], id, func(b bucket, id int64) int { return cmp.Compare(b.id, id) })
	return int(from) + i, found
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

// of returns the refunds of a bucket. h may be nil.
func (h *handed) of(id int64) (is returned) {
	if h == nil {
		return is
	}
	if i, found := h.find(id); found {
		is = h.list[i]
	}
	return is
}

// addReturn records refunded units of a bucket.
func (w *Window) addReturn(h returned) {
	if h.back == 0 && h.sent == 0 {
		return
	}
	if w.handed == nil {
		w.handed = new(handed)
	}
	i, found := w.handed.find(h.id)
	if !found {
		w.handed.list = slices.Insert(w.handed.list, i, returned{id: h.id})
	}
	is := &w.handed.list[i]
	is.back, is.sent = min(is.back+h.back, MaxUnits), min(is.sent+h.sent, MaxUnits)
}

func (h *handed) find(id int64) (i int, found bool) {
	return slices.BinarySearchFunc(h.list, id, func(b returned, id int64) int { return cmp.Compare(b.id, id) })
}

// eachReturned calls f for each bucket with refunds.
func (w *Window) eachReturned(f func(h *returned)) {
	if w.handed != nil {
		for i := range w.handed.list {
			f(&w.handed.list[i])
		}
	}
}

// tidy drops buckets that are empty or have left the window. It returns the pending units
// among them.
func (w *Window) tidy(r *arith.Rule) (expired int64) {
	oldest := w.cur - int64(r.Kept)
	if h := w.handed; h != nil {
		h.list = slices.DeleteFunc(h.list, func(b returned) bool { return b.id < oldest || b.back == 0 && b.sent == 0 })
		if len(h.list) == 0 && h.claim == 0 {
			w.handed = nil
		}
	}
	w.list = slices.DeleteFunc(w.list, func(b bucket) bool {
		if b.id < oldest {
			expired += b.pend
		}
		return b.id < oldest || b.known+b.sent+b.pend == 0 && w.handed.of(b.id) == returned{}
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
