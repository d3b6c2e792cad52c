package local

// TableStats describes a [Table]. The first group says how it is, the second
// counts what has happened since it was made. The numbers are read one by one
// while the table is at work, and need not add up.
type TableStats struct {
	// Live is the number of counters that keys have, wherever they are kept.
	Live int64
	// Cached is the number of entries in the cache, a few of which may be of
	// forgotten counters; 0 once the table is closed.
	Cached int64
	// Side is the number of counters in the side table. Those on their way to
	// the cache are counted there too.
	Side int64
	// SideRoom is how many newcomers the side table has room for in all.
	SideRoom int64

	// Created counts counters made for new keys.
	Created int64
	// Expired counts counters let go because they were as if never used.
	Expired int64
	// Evictions counts counters that the cache pushed out, and PutBack those
	// of them that went on living in the side table.
	Evictions, PutBack int64
	// DroppedSets counts offers that the cache was too busy to look at.
	DroppedSets int64
	// Forgotten counts counters that had been used, but would not have refused
	// one unit, and were dropped for want of room.
	Forgotten int64
	// ForgottenDenying counts counters that would have refused one unit, and
	// were dropped because the side table was overfull of such.
	ForgottenDenying int64
	// Overflow counts decisions for keys that shared a counter because there
	// was no room for one of their own.
	Overflow int64
	// Conflicts counts how often a rule was used again after another of its name that
	// counts otherwise: by another algorithm, rate, period or number of buckets. Of such
	// rules neither limits anybody to what it says. Names beyond the first 1,024 are not
	// watched, and what is answered without a look at the counter is not seen.
	Conflicts int64
	// Merged counts counters that were united with another of the same key,
	// and Limbo the lookups that gave up waiting for an eviction to end, the
	// cause of such twins. Both should be 0.
	Merged, Limbo int64
}

// Stats returns the figures of the table. It takes no lock that a check needs.
func (t *Table) Stats() TableStats {
	s := &t.stats
	return TableStats{
		Live: s.live.Load(), Cached: t.cached(), Side: s.side.Load(), SideRoom: int64(t.room) * sideShards,
		Created: s.created.Load(), Expired: s.expired.Load(),
		Evictions: s.evictions.Load(), PutBack: s.putBack.Load(),
		DroppedSets: s.dropped.Load(),
		Forgotten:   s.forgotten[worthPartial].Load(), ForgottenDenying: s.forgotten[worthDenying].Load(),
		Overflow: s.overflow.Load(), Conflicts: t.names.conflicts.Load(),
		Merged: s.merged.Load(), Limbo: s.limbo.Load(),
	}
}

func (t *Table) cached() int64 {
	if !t.writeMu.TryRLock() {
		return 0 // being closed
	}
	defer t.writeMu.RUnlock()
	if t.view.Load() == nil {
		return 0
	}
	return t.cache.MaxCost() - t.cache.RemainingCost()
}

// Stats describes a [Limiter].
type Stats struct {
	TableStats
	// Invalid counts checks refused because they could not be asked: a
	// negative number of units, or a rule that is nil or zero.
	Invalid int64
}
