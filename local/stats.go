package local

// Stats describes a [Limiter]. Keys is its present state; the others count events since it was made.
type Stats struct {
	// Keys is the number of keys in memory.
	Keys int64
	// Evictions counts how often a key had to leave because there was no room. A key in use may stay.
	Evictions int64
	// Displaced counts keys that were forgotten although their units still counted, because others took
	// their place, see [Options].MaxRemembered. Such a key begins anew.
	Displaced int64
	// Conflicts counts how often a rule was used again after another of its name that counts otherwise:
	// by another algorithm, rate, period or number of buckets. Neither of two such rules holds. Names
	// beyond the first 1,024 are not watched, and not every check is.
	Conflicts int64
	// Invalid counts checks that were refused because they cannot be decided: a negative number of
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
		s.Keys, s.Evictions, s.Displaced, s.Conflicts = t.Live, t.Evictions, t.Displaced, t.Conflicts
	}
	return s
}
