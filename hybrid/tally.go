package hybrid

import "github.com/hybridlimit/hybridlimit/internal/tally"

// outcomesOf converts what was counted in each group of sources.
func outcomesOf(n [tally.Groups]uint64) Outcomes {
	return Outcomes{Unsynced: n[tally.Unsynced], Synced: n[tally.Synced], Degraded: n[tally.Degraded], Local: n[tally.Local], Notice: n[tally.Notice]}
}

func (o *Outcomes) add(p Outcomes) {
	o.Unsynced += p.Unsynced
	o.Synced += p.Synced
	o.Degraded += p.Degraded
	o.Local += p.Local
	o.Notice += p.Notice
}

// addRules adds what was counted by rule to s. It returns how many of the admitted units are
// reported to Redis: all but those of overflow counters.
func (s *Stats) addRules(all []tally.Named) (shared int64) {
	for _, is := range all {
		r := RuleStats{Name: is.Name, Allowed: outcomesOf(is.Allowed), Denied: outcomesOf(is.Denied), WouldRefuse: is.WouldRefuse, Invalid: is.Invalid}
		s.Rules = append(s.Rules, r)
		s.Allowed.add(r.Allowed)
		s.Denied.add(r.Denied)
		s.WouldRefuse += r.WouldRefuse
		s.Invalid += r.Invalid
		for g, units := range is.Units {
			s.AdmittedUnits += units
			if g != tally.Local {
				shared += units
			}
		}
	}
	return shared
}
