package table

import "sync/atomic"

// Stats describes a [Table]. The first group is its present state, the second counts
// events since it was made. The numbers are read one by one while the table is at work, and
// need not add up.
type Stats struct {
	// Live is the number of counters, one for each key in memory.
	Live int64
	// Room is the bound of Live.
	Room int64

	// Created counts counters made for new keys.
	Created int64
	// Expired counts counters dropped because they were as if never used.
	Expired int64
	// Forgotten counts counters that had been used, but would not have refused one unit,
	// and were dropped because there was no room.
	Forgotten int64
	// Evictions counts how often the policy has dropped a counter, which may stay in the
	// table.
	Evictions int64
	// DroppedSets counts counters that the policy was too busy to take in. They are offered
	// again when they are used.
	DroppedSets int64
	// Overflow counts decisions by overflow counters, for new keys without room.
	Overflow int64
	// Conflicts counts how often a rule was used again after another of its name that
	// counts otherwise: by another algorithm, rate, period or number of buckets. Neither of
	// two such rules holds. Names beyond the first 1,024 are not watched, and checks that a
	// lease decides are not seen.
	Conflicts int64
}

// tableCounts are the sums behind Stats. No check that a lease decides writes to them.
type tableCounts struct {
	live, created, expired, forgotten atomic.Int64
	evictions, dropped, overflow      atomic.Int64
}
