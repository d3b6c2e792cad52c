package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// Stats is a snapshot of what a limiter has done since it was made. Its fields are read one
// after another, not at one instant. docs/operations.md says what to do when one of them moves.
type Stats struct {
	// Allowed and Denied are decisions. WouldRefuse are checks that were admitted only because the
	// rule is a dry run, and Invalid those that cannot be decided: a negative n, or a rule that cannot
	// be used. Both are in neither Allowed nor Denied; invalid checks are refused.
	Allowed, Denied, WouldRefuse, Invalid int64
	// AdmittedUnits are those of the decisions and of Charge. A Wait or a Reserve counts from when it
	// has reserved. Each admitted unit is then one of these: BookedUnits are in Redis, PendingUnits
	// wait for a report, ExpiredUnits had expired when Redis could be reached, ForgivenUnits are above
	// MaxDebt, OverflowUnits belong to keys that had to leave memory before a report, and
	// WithdrawnUnits were given back, or their key was reset, before a report.
	AdmittedUnits, BookedUnits, PendingUnits, ExpiredUnits, ForgivenUnits, OverflowUnits, WithdrawnUnits int64
	// RefundedUnits were given back by Refund and Cancel, reported or not.
	RefundedUnits int64
	// OldestPending is how long ago the oldest pending unit was admitted; 0: there is none. While
	// Redis answers it is about a lag at most, see [Options].MaxLag.
	OldestPending time.Duration
	// Keys are in memory. Evictions counts those that had to leave, and Displaced those that were
	// forgotten although their units still counted, see [Options].MaxRemembered.
	Keys, Evictions, Displaced int64
	// QuarantinedKeys are keys in memory that Redis cannot use now, see [EventQuarantined].
	QuarantinedKeys int64
	// ExactAsked counts calls of TakeExact that have asked Redis, and ExactFailed
	// those of them that have returned an error.
	ExactAsked, ExactFailed int64
	// Failures counts exchanges with Redis that failed. LastSuccess is when the latest one succeeded,
	// by the limiter's clock; zero: there was none.
	Failures    int64
	LastSuccess time.Time
	// Behind is how long a report in the latest script call had waited after it was due. If it is more
	// than some milliseconds, Redis does not keep up.
	Behind time.Duration
	// Losses counts losses of data in Redis that were noticed, for each shard.
	Losses int64
	// Conflicts counts uses of a rule after another rule of its name that counts differently.
	Conflicts int64
	// Overshoot is the largest number of units by which Redis has reported a key above its limit.
	Overshoot int64
	// Rules counts the decisions by rule, in the order of the names. Their sums are the fields above.
	Rules []RuleStats
}

// RuleStats counts the checks under the rules of one name, as [Stats] counts those of all. Rules after
// the first 1,000 names, and checks with a rule that is nil or zero, count under the empty name.
type RuleStats struct {
	Name                                  string
	Allowed, Denied, WouldRefuse, Invalid int64
}

// Stats returns what the limiter has done so far. It looks at each key in memory: 65,536 keys take
// some milliseconds, a million about 80 ms.
func (l *Limiter) Stats() Stats { return statsOf(view{l}.Figures()) }

// statsOf returns those of all figures that users read.
func statsOf(f inside.Figures) Stats {
	s := Stats{
		Allowed: int64(f.Allowed.Total()), Denied: int64(f.Denied.Total()), WouldRefuse: int64(f.WouldRefuse), Invalid: int64(f.Invalid),
		AdmittedUnits: f.AdmittedUnits, BookedUnits: f.BookedUnits, PendingUnits: f.PendingUnits, ExpiredUnits: f.ExpiredUnits,
		ForgivenUnits: f.ForgivenUnits, OverflowUnits: f.OverflowUnits, WithdrawnUnits: f.WithdrawnUnits, RefundedUnits: f.RefundedUnits,
		OldestPending: f.OldestPending, Keys: f.Keys, Evictions: int64(f.Evictions), Displaced: int64(f.Displaced), QuarantinedKeys: f.QuarantinedKeys,
		ExactAsked: int64(f.ExactAsked), ExactFailed: int64(f.ExactFailed), Failures: int64(f.Failures), LastSuccess: f.LastSuccess, Behind: f.Behind, Losses: int64(f.Losses),
		Conflicts: int64(f.Conflicts), Overshoot: f.Overshoot,
	}
	for _, r := range f.Rules {
		s.Rules = append(s.Rules, RuleStats{r.Name, int64(r.Allowed.Total()), int64(r.Denied.Total()), int64(r.WouldRefuse), int64(r.Invalid)})
	}
	return s
}
