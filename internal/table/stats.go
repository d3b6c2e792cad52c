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
	// Remembered is the number of keys that had to leave and of which it is remembered what they have
	// used, or have used until lately. RememberedRoom is the largest possible number.
	Remembered, RememberedRoom int64

	// Created counts counters made for new keys.
	Created int64
	// Expired counts counters that were dropped because they were in the state of a new one.
	Expired int64
	// Forgotten counts counters that were dropped, although they had been used, because there was no
	// room. What they had counted is remembered.
	Forgotten int64
	// Evictions counts how often the policy has dropped a counter. Such a counter may stay in the
	// table.
	Evictions int64
	// DroppedSets counts counters that the policy was too busy to accept. They are offered again
	// when they are used.
	DroppedSets int64
	// Overflow counts decisions of keys without room, because no counter could be dropped for them.
	// They are decided by what is remembered of them, and remembered again.
	Overflow int64
	// Recalled counts counters that began with what was remembered of their key. Displaced counts
	// keys that were forgotten although their units still counted, because others took their place.
	Recalled, Displaced int64
	// Unreported counts units that were not reported before their key had to leave: they are lost for the
	// other nodes.
	Unreported int64
	// Conflicts counts how often a rule was used after another of the same name that counts
	// differently: by another algorithm, rate, period or number of buckets. Neither of two such
	// rules is guaranteed to hold. Only the first 1,024 names are watched, and checks that a lease
	// decides are not seen.
	Conflicts int64
	// Rebuilt counts how often a rule was used after another one that is equal, as if it were built anew
	// for each check. Leases belong to one rule, so such a check is slow.
	Rebuilt int64
}

// tableCounts has the counts behind Stats. No check that a lease decides writes to them.
type tableCounts struct {
	live, created, expired, forgotten atomic.Int64
	evictions, dropped, overflow      atomic.Int64
}
