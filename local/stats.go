package local

// Stats describes a [Limiter]. Keys, Room and Remembered are its present state, the others count events
// since it was made. The numbers are read one by one while the limiter is at work, and need
// not add up.
type Stats struct {
	// Keys is the number of keys in memory.
	Keys int64
	// Room is the bound of Keys.
	Room int64
	// Remembered is the number of keys that have left memory and are remembered.
	Remembered int64

	// Created counts keys that were new.
	Created int64
	// Expired counts keys dropped because they were as if never used.
	Expired int64
	// Forgotten counts keys that had been used and left memory because there was no room. What they
	// have used is remembered, see [Options].MaxRemembered.
	Forgotten int64
	// Displaced counts remembered keys that were forgotten although their units still counted, because
	// others took their place. Such a key begins anew.
	Displaced int64
	// Evictions counts how often the policy has dropped a key, which may stay in memory.
	Evictions int64
	// DroppedSets counts keys that the policy was too busy to take in. They are offered
	// again when they are used.
	DroppedSets int64
	// Overflow counts decisions for keys without room, because all others had to stay. What such a key
	// has used is remembered as well.
	Overflow int64
	// Conflicts counts how often a rule was used again after another of its name that
	// counts otherwise: by another algorithm, rate, period or number of buckets. Neither of
	// two such rules holds. Names beyond the first 1,024 are not watched, and not every
	// check is.
	Conflicts int64
	// Invalid counts checks refused because they could not be asked: a negative number of
	// units, or a rule that is nil or zero.
	Invalid int64
}

// Stats returns the figures of the limiter.
func (l *Limiter) Stats() Stats {
	if l == nil {
		return Stats{}
	}
	s := Stats{Invalid: l.invalid.Load()}
	if l.table != nil {
		t := l.table.Stats()
		s.Keys, s.Room, s.Created, s.Expired, s.Forgotten = t.Live, t.Room, t.Created, t.Expired, t.Forgotten
		s.Evictions, s.DroppedSets, s.Overflow, s.Conflicts = t.Evictions, t.DroppedSets, t.Overflow, t.Conflicts
		s.Remembered, s.Displaced = t.Remembered, t.Displaced
	}
	return s
}
