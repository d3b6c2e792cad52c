package reconcile

import (
	"container/heap"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

// urgentQueue holds the counters of a shard that have an urgent report. If Redis cannot book all of
// them at once, the counter goes first whose units keep coming while it waits: a report prevents
// only what would be admitted after it. So the counters are ordered by growth, and those that have
// not grown by arrival. The number of pending units says less. A key that was asked for many units
// at once, and is not asked any more, can wait.
//
// The zero urgentQueue is empty. An operation takes a time that is logarithmic in the number of
// counters, and a counter is in the queue once.
type urgentQueue struct {
	heap urgentHeap
	of   map[*counter.Counter]*urgentReport
}

// urgentReport is a counter in an urgentQueue.
type urgentReport struct {
	queued
	growth float64 // how many times what makes a report urgent has come since a flight left without c
	base   int64   // pending units when that flight left, or when c was last put before
	seenAt int64   // when base was set, on the timer clock
	place  int     // in the heap
}

// put adds a counter, or updates how urgent its report is. filledAt is when the shard made its latest
// flight. fresh: all pending units were admitted after a flight had left.
func (q *urgentQueue) put(k *counter.Counter, u counter.Urgency, now, filledAt int64, fresh bool) {
	r := q.of[k]
	switch {
	case r == nil:
		if q.of == nil {
			q.of = map[*counter.Counter]*urgentReport{}
		}
		r = &urgentReport{queued: queued{k, now}, base: u.Pending, seenAt: now}
		if fresh {
			r.base = 0
		}
		q.of[k] = r
		heap.Push(&q.heap, r)
	case r.base != 0 && r.growth == 0 && filledAt < r.seenAt: // no flight has left since
		r.base, r.seenAt = u.Pending, now
	}
	if r.growth = float64(max(u.Pending-r.base, 0)) / float64(u.At); r.growth > 0 {
		heap.Fix(&q.heap, r.place)
	}
}

// pop removes the first counter.
func (q *urgentQueue) pop() queued {
	r := q.heap[0]
	q.remove(r.c)
	return r.queued
}

// remove removes a counter, if it is in the queue.
func (q *urgentQueue) remove(k *counter.Counter) {
	r := q.of[k]
	if r == nil {
		return
	}
	heap.Remove(&q.heap, r.place)
	if delete(q.of, k); len(q.of) == 0 {
		*q = urgentQueue{} // frees its memory
	}
}

// oldest returns when the counter was queued that has waited the longest, or most.
func (q *urgentQueue) oldest(most int64) int64 {
	for _, r := range q.heap {
		most = min(most, r.at)
	}
	return most
}

func (q *urgentQueue) len() int { return len(q.heap) }

// urgentHeap has the first counter at index 0, see container/heap.
type urgentHeap []*urgentReport

func (h urgentHeap) Len() int { return len(h) }

func (h urgentHeap) Less(i, k int) bool {
	a, b := h[i], h[k]
	return a.growth > b.growth || a.growth == b.growth && a.at < b.at
}

func (h urgentHeap) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].place, h[k].place = i, k
}

// Push adds x at the end.
func (h *urgentHeap) Push(x any) {
	r := x.(*urgentReport)
	r.place = len(*h)
	*h = append(*h, r)
}

// Pop removes the last element.
func (h *urgentHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}
