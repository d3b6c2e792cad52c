package hybrid

import "github.com/hybridlimit/hybridlimit/internal/counter"

// quarantine holds the counters whose keys Redis cannot use, in the order in which they
// are to be tried again.
type quarantine []quarantined

type quarantined struct {
	c     *counter.Counter
	until int64 // on the clock that timers run on
}

// add puts a counter in until a time, which is not before that of any other.
func (q *quarantine) add(c *counter.Counter, until int64) { *q = append(*q, quarantined{c, until}) }

// next returns when the next counter is to be tried again, 0 if there is none.
func (q quarantine) next() int64 {
	if len(q) == 0 {
		return 0
	}
	return q[0].until
}

// release takes the counters out that are to be tried again by now.
func (q *quarantine) release(now int64) (list []*counter.Counter) {
	for len(*q) > 0 && now >= (*q)[0].until {
		list = append(list, (*q)[0].c)
		*q = (*q)[1:]
	}
	return list
}
