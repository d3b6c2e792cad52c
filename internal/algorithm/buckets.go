package algorithm

import (
	"cmp"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// bucket is a bucket of a window that is not empty.
type bucket struct {
	id   int64 // see [report.Bucket]
	last int64 // when the last unit came, ns after the bucket began
	counts
}

// counts are the parts of a bucket of a window: each is a number of units.
type counts = parts[int64, int64, int64]

// numbers computes with counts.
type numbers struct{}

func (numbers) plus(s, u, multiplier int64) int64 { return min(s+Times(u, multiplier), MaxUnits) }
func (numbers) minus(s, b int64) int64            { return max(s-b, 0) }
func (numbers) join(u, v int64) int64             { return min(u+v, MaxUnits) }
func (numbers) both(b, c int64) int64             { return min(b+c, MaxUnits) }

// count returns how many units b counts as, with this multiplier for unacknowledged units.
func (b *bucket) count(multiplier int64) int64 {
	if multiplier == 1 && b.back+b.sentBack == 0 {
		return b.known + b.sent + b.pend // short enough to be inlined
	}
	return b.view(numbers{}, multiplier)
}

// add adds the units of another bucket.
func (b *bucket) add(c counts) {
	m := numbers{}
	b.counts = counts{m.join(b.known, c.known), m.both(b.sentBack, c.sentBack), m.join(b.sent, c.sent), m.both(b.back, c.back), m.join(b.pend, c.pend)}
}

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
		return b.id < oldest || b.counts == counts{}
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
