package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// flight is a batch on its way: which counters, and what they sent.
type flight struct {
	items       []item
	cost        int64 // estimate, ns
	tries       int
	nonce       uint64 // so that Redis can tell it from that of a copy of this process
	maybeBooked bool   // one of them may have been booked without an answer
	unanswered  int    // so many times in a row there was no answer
	part        bool   // of a flight that was taken apart
}

type item struct {
	c      *table.Counter
	rule   *limit.Rule
	units  int64
	back   bool // something is handed back
	raised bool
	// Redis has booked it, which is known without its state: that is only read. So
	// many of its units were forgiven then.
	booked   bool
	forgiven int64
}

func (f *flight) add(it item) {
	f.items = append(f.items, it)
	f.cost += cost(it.rule)
}

type pipe struct {
	load   *load
	shards []int
	sent   int64 // local time
	at     int64 // pace
	cost   int64 // of its flights, ns
}
