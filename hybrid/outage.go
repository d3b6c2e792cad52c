package hybrid

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// outage adds up the outages since the latest log line about their end. The zero outage is that of no
// outage.
type outage struct {
	since  time.Time      // start of the present outage; zero: there is none
	began  time.Duration  // the same on the timer clock
	before inside.Figures // at that start
	said   uint64         // checks that the fallback had decided at the latest line about the present outage
	cause  State          // at the start of the latest outage
	count  int            // outages that have ended
	sum    time.Duration
	stats  inside.Figures // what has happened in them: only the sums of units
}

const (
	// brief is for how long an outage is not logged, unless an operator must end it: a stall of Redis or a
	// connection that breaks. Outages that were shorter share a line, sumUpEvery after the first of them.
	brief      = time.Second
	sumUpEvery = time.Minute
)

// note applies a change of state.
func (o *outage) note(s State, stats func() inside.Figures) {
	switch {
	case s.Mode == Degraded && o.since.IsZero():
		o.since, o.began, o.before, o.cause = s.Since, pace(), stats(), s
		o.said = byFallback(&o.before)
	case s.Mode == Synced && !o.since.IsZero():
		is := stats()
		o.count++
		o.sum += s.Since.Sub(o.since)
		o.stats.AdmittedUnits += is.AdmittedUnits - o.before.AdmittedUnits
		o.stats.BookedUnits += is.BookedUnits - o.before.BookedUnits
		o.stats.ForgivenUnits += is.ForgivenUnits - o.before.ForgivenUnits
		o.stats.ExpiredUnits += is.ExpiredUnits - o.before.ExpiredUnits
		o.since = time.Time{}
	}
}

// byFallback returns how many checks the fallback has decided.
func byFallback(s *inside.Figures) uint64 { return s.Allowed.Degraded + s.Denied.Degraded }

// report returns what a log line says about the outages that have ended, and resets the sums.
func (o *outage) report() []slog.Attr {
	if o.count == 0 {
		return nil
	}
	attrs := []slog.Attr{slog.Float64("outage_seconds", twoDigits(o.sum.Seconds())), slog.Int("outages", o.count), slog.Int64("admitted", o.stats.AdmittedUnits),
		slog.Int64("reported", o.stats.BookedUnits), slog.Int64("expired", o.stats.ExpiredUnits),
		slog.Int64("forgiven", o.stats.ForgivenUnits)}
	o.count, o.sum, o.stats = 0, 0, inside.Figures{}
	return attrs
}

// lasting returns what a repeated line about the present outage adds: how long the outage has lasted, and
// how many checks the fallback has decided since the line before.
func (o *outage) lasting(is inside.Figures) []slog.Attr {
	n := byFallback(&is)
	checks := n - o.said
	o.said = n
	return []slog.Attr{slog.Float64("lasting_seconds", twoDigits((pace() - o.began).Seconds())), slog.Uint64("checks", checks)}
}

// sumUp logs the outages that were too brief for lines of their own.
func (n *notifier) sumUp() {
	n.sumUpAt = 0
	if sums := n.outage.report(); sums != nil {
		n.write(slog.LevelWarn, "rate limiter degraded briefly", append(why(n.outage.cause.Reason, n.outage.cause.Err), sums...), 0)
	}
}

// twoDigits rounds a number for a log line to two significant digits.
func twoDigits(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 2, 64), 64)
	return v
}
