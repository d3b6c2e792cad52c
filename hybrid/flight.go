package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// flight is a batch under way: the counters and what they report.
type flight struct {
	items       []item
	cost        int64  // estimate of how long it occupies Redis, ns
	tries       int    // how often it was sent
	nonce       uint64 // distinguishes it from a flight of a copy of this process
	maybeBooked bool   // Redis may have booked it: an attempt got no answer
	unanswered  int    // how many attempts in a row got no answer
	part        bool   // it is part of a flight that was split
}

// item is what one counter reports in a flight.
type item struct {
	c      *counter.Counter
	rule   *limit.Rule
	units  int64
	back   bool // it hands units back
	raised bool // it restores what Redis has lost
	// Redis is known to have booked the item, but the answer with the state of the key was
	// lost: the next batch only reads that state.
	booked   bool
	forgiven int64 // how many of the units Redis forgave when it booked them
}

func (f *flight) add(it item) {
	f.items = append(f.items, it)
	f.cost += cost(it.rule)
}

// pipe is a pipeline under way: the flights of some shards of one server.
type pipe struct {
	load   *load
	shards []int
	sent   int64 // when it was sent, on the counter clock
	at     int64 // the same instant on the timer clock
	cost   int64 // sum of its flights, ns
}
