package reconcile

import (
	"slices"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

// A counter goes first if units come while it waits, by how often what makes its report urgent has come.
// Units that were there before a flight could leave do not count, however many they are.
//
// Fault 110: the order of the urgent queue.
func TestUrgentQueueOrder(t *testing.T) {
	var q urgentQueue
	names, all := map[*counter.Counter]string{}, map[string]*counter.Counter{}
	put := func(name string, pending, at, now, filledAt int64, fresh bool) {
		k := all[name]
		if k == nil {
			k = new(counter.Counter)
			all[name], names[k] = k, name
		}
		q.put(k, counter.Urgency{Pending: pending, At: at}, now, filledAt, fresh)
	}
	put("many at once", 30, 3, 10, 5, false)
	put("grows", 2, 2, 11, 5, false)
	put("grows twice", 60, 60, 12, 5, false)
	put("many in a row", 1, 1, 13, 5, false)
	put("many in a row", 30, 1, 14, 5, false) // the latest flight left before it came
	put("later", 1, 1, 20, 5, false)
	put("after its own flight", 5, 2, 21, 20, true)
	put("collected by another queue", 9, 1, 22, 20, true)
	put("grows", 4, 2, 30, 25, false)
	put("grows twice", 120, 60, 31, 25, false)
	put("grows twice", 180, 60, 32, 25, false)
	q.remove(all["collected by another queue"])
	q.remove(all["collected by another queue"])
	if at := q.oldest(100); at != 10 || q.len() != 6 {
		t.Errorf("%d counters, the first since %d", q.len(), at)
	}
	var got []string
	for q.len() > 0 {
		got = append(got, names[q.pop().c])
	}
	want := []string{"after its own flight", "grows twice", "grows", "many at once", "many in a row", "later"}
	if !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
	if q.of != nil || q.heap != nil {
		t.Error("an empty queue keeps its memory")
	}
}
