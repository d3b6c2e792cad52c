package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// view is the inside of a limiter.
type view struct{ *Limiter }

// Inside is for the adapters and the command of this project: figures and explanations that are no
// part of its public surface, and may change with each version.
func (l *Limiter) Inside(inside.Key) inside.View { return view{l} }

// fallback returns the policy for checks while Redis is unreachable.
func (l *Limiter) fallback() Fallback {
	if l == nil || l.driver == nil {
		return FairShare
	}
	return Fallback(l.driver.fallback)
}

// ID implements [inside.View].
func (v view) ID() string {
	l := v.Limiter
	if l == nil || l.driver == nil {
		return ""
	}
	return *l.driver.node.Load()
}

// CountInvalid implements [inside.View].
func (v view) CountInvalid(rule *limit.Rule) {
	if v.Limiter != nil {
		v.tally.Of(rule).Invalid()
	}
}

// CountExempt implements [inside.View].
func (v view) CountExempt(name string) {
	if len(name) > arith.MaxNameBytes {
		name = "" // what counts by rule has bounded names
	}
	if v.Limiter != nil {
		v.tally.OfName(name).Exempt()
	}
}

// Figures implements [inside.View].
func (v view) Figures() inside.Figures { return v.figures((*table.Table).Survey) }

// QuickFigures implements [inside.View].
func (v view) QuickFigures() inside.Figures {
	return v.figures(func(*table.Table, int64) (none counter.Survey) { return none })
}

// figures returns the statistics, with those that survey finds in the table at a time.
func (l *Limiter) figures(survey func(t *table.Table, now int64) counter.Survey) (s inside.Figures) {
	if l == nil || l.table == nil {
		if l != nil {
			s.AddRules(l.tally.All())
		}
		return s
	}
	// What reduces the pending units is read before what adds to them, so that their number is
	// never negative.
	s.BookedUnits, s.ForgivenUnits = l.stats.Acked.Load(), l.stats.Forgiven.Load()
	if l.link != nil {
		s.ExpiredUnits, s.WithdrawnUnits = l.link.Expired.Load(), l.link.Withdrawn.Load()
		s.ForgivenUnits += l.link.Forgiven.Load()
		s.OverflowUnits = l.link.Unreported.Load()
	}
	s.RefundedUnits, s.RefundsGivenUp = l.stats.Refunded.Load(), l.stats.GivenUp.Load()
	s.UnreturnedUnits = l.stats.Unreturned.Load()
	s.ExactAsked, s.ExactFailed = l.stats.ExactAsked.Load(), l.stats.ExactFailed.Load()
	s.CancelledUnits, s.ChargedUnits = l.stats.Cancelled.Load(), l.stats.Charged.Load()
	now := l.now()
	keys := survey(l.table, now)
	s.AddRules(l.tally.All())
	for i := range s.Rules {
		s.Rules[i].Overshoot = l.stats.OvershootOf(s.Rules[i].Name)
	}
	if l.link != nil {
		s.UnreturnedUnits += l.link.Unreturned.Load()
		s.PendingUnits = s.AdmittedUnits - s.BookedUnits - s.ForgivenUnits - s.ExpiredUnits - s.WithdrawnUnits - s.OverflowUnits
		s.QueuedKeys, s.QuarantinedKeys = keys.Queued, keys.Quarantined
		if keys.Oldest != 0 {
			s.OldestPending = time.Duration(max(now-keys.Oldest, 1))
		}
		s.FailuresBy, s.Exchanges = l.stats.LoadFailures(), latencyOf(&l.stats.Exchanges)
		if at := l.stats.LastSuccess.Load(); at != 0 {
			s.LastSuccess = time.Unix(0, at)
		}
	}
	ts := l.table.Stats()
	s.Keys, s.Evictions, s.Overflow, s.Conflicts = ts.Live, uint64(ts.Evictions), uint64(ts.Overflow), uint64(ts.Conflicts)
	s.Rebuilt, s.Remembered, s.Displaced = uint64(ts.Rebuilt), ts.Remembered, uint64(ts.Displaced)
	c := &l.stats
	s.Batches, s.KeysSynced, s.ResentBatches = c.Batches.Load(), c.KeysSynced.Load(), c.Resent.Load()
	s.Heartbeats, s.Failures, s.Losses = c.Beats.Load(), c.Failures.Load(), c.Losses.Load()
	s.RolledBackKeys, s.Quarantined = c.RolledBack.Load(), c.Quarantined.Load()
	s.Renames, s.Mismatches, s.Behind = c.Renames.Load(), c.Mismatches.Load(), time.Duration(c.Behind.Load())
	s.BadReplies, s.StateChanges = c.BadReplies.Load(), c.StateChanges.Load()
	s.NoticesSent, s.NoticesHeard, s.NoticesLate = c.Announced.Load(), c.Received.Load(), c.Withheld.Load()
	s.NoticesMissed = c.Missed.Load()
	s.HookPanics, s.Overshoot = c.HookPanics.Load(), c.Overshoot.Load()
	return s
}

// latencyOf converts the counts of package reconcile.
func latencyOf(l *reconcile.Latencies) (is inside.Latency) {
	is.Last, is.Max, is.Sum = time.Duration(l.Last.Load()), time.Duration(l.Most.Load()), time.Duration(l.Sum.Load())
	for i := range is.Buckets {
		is.Buckets[i] = l.Buckets[i].Load()
	}
	return is
}
