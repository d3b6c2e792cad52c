package hybrid

import (
	"log/slog"
	"time"
)

// outage adds up the outages since the latest log line about one.
type outage struct {
	since  time.Time // start of the present outage; zero: there is none
	before Stats     // at that start
	count  int       // outages that have ended
	sum    time.Duration
	stats  Stats // what has happened in them: only the sums of units
}

// note applies a change of state.
func (o *outage) note(s State, stats func() Stats) {
	switch {
	case s.Mode == Degraded && o.since.IsZero():
		o.since, o.before = s.Since, stats()
	case s.Mode == Synced && !o.since.IsZero():
		is := stats()
		o.count++
		o.sum += s.Since.Sub(o.since)
		o.stats.AdmittedUnits += is.AdmittedUnits - o.before.AdmittedUnits
		o.stats.AckedUnits += is.AckedUnits - o.before.AckedUnits
		o.stats.ForgivenUnits += is.ForgivenUnits - o.before.ForgivenUnits
		o.stats.ExpiredUnits += is.ExpiredUnits - o.before.ExpiredUnits
		o.since = time.Time{}
	}
}

// report returns what a log line says about the outages that have ended, and forgets them.
func (o *outage) report() []slog.Attr {
	if o.count == 0 {
		return nil
	}
	attrs := []slog.Attr{slog.Float64("outage_seconds", o.sum.Seconds()), slog.Int("outages", o.count), slog.Int64("admitted", o.stats.AdmittedUnits),
		slog.Int64("reported", o.stats.AckedUnits), slog.Int64("expired", o.stats.ExpiredUnits),
		slog.Int64("forgiven", o.stats.ForgivenUnits)}
	*o = outage{since: o.since, before: o.before}
	return attrs
}
