package table

import "sync/atomic"

// Stats describes a [Table]. The first group is its present state, the second counts events since
// the table was made. The numbers are read one by one while the table is in use, so they need not
// add up.
type Stats struct {
	// Live is the number of counters, one for each key in memory.
	Live int64
	// Room is the largest possible Live.
	Room int64

	// Created counts counters made for new keys.
	Created int64
	// Expired counts counters that were dropped because they were in the state of a new one.
	Expired int64
	// Forgotten counts counters that were dropped because there was no room. They had been used,
	// but would not have refused one unit.
	Forgotten int64
	// Evictions counts how often the policy has dropped a counter. Such a counter may stay in the
	// table.
	Evictions int64
	// DroppedSets counts counters that the policy was too busy to accept. They are offered again
	// when they are used.
	DroppedSets int64
	// Overflow counts decisions by overflow counters, for new keys without room.
	Overflow int64
	// Conflicts counts how often a rule was used after another of the same name that counts
	// differently: by another algorithm, rate, period or number of buckets. Neither of two such
	// rules is guaranteed to hold. Only the first 1,024 names are watched, and checks that a lease
	// decides are not seen.
	Conflicts int64
}

// tableCounts has the counts behind Stats. No check that a lease decides writes to them.
type tableCounts struct {
	live, created, expired, forgotten atomic.Int64
	evictions, dropped, overflow      atomic.Int64
}
