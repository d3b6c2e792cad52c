package hybrid

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/internal/tally"
	"github.com/hybridlimit/hybridlimit/internal/waitqueue"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Limiter decides locally and reconciles with Redis. Make it with [New]. All methods are
// safe for concurrent use. A nil or zero Limiter refuses every check.
//
// One Limiter is one node. A process needs only one, for any number of rules and keys.
type Limiter struct {
	tally  tally.Tallies
	table  *table.Table
	clock  clock.Clock
	link   *counter.Link
	driver *driver // nil: local only
	stats  reconcile.Stats
	queues waitqueue.Queues
	notify *notifier
	misuse [causes]atomic.Bool // which causes of invalid checks were reported: each is one event
	// For how long a waiter for a window lets other nodes have their part, so that they can learn
	// what was admitted here.
	patience time.Duration
	closed   atomic.Bool
}

func (l *Limiter) now() int64 { return int64(l.clock.Now()) }

// CheckRule reports whether this limiter can decide rule: an error that wraps
// [limit.ErrNilRule] or [limit.ErrUnsupported] if not. Checks with such a rule are refused
// and counted in [Stats].Invalid.
func (l *Limiter) CheckRule(rule *limit.Rule) error {
	switch {
	case !rule.Valid():
		return fmt.Errorf("hybrid: %w", limit.ErrNilRule)
	case rule.Parts() != nil:
		return decision.EachPart(rule, l.CheckRule)
	case rule.Algorithm() == limit.AlgorithmSlidingLog:
		return fmt.Errorf("hybrid: %w: %v: a sliding log cannot be merged from batches; use a sliding window here, or package remote for an exact log", limit.ErrUnsupported, rule)
	}
	return nil
}

// usable reports whether the table can decide a check. If not, the rule may be combined, or the check is
// invalid.
func (l *Limiter) usable(rule *limit.Rule, n int64) bool {
	return l != nil && l.table != nil && n >= 0 && rule.Valid() && rule.Algorithm() < limit.AlgorithmSlidingLog
}

// Flush reconciles every key in memory with Redis now: what is pending is reported, and the
// state of every key is fetched again. It waits until that is done or ctx ends. While Redis
// is unreachable it sends one probe, regardless of the back-off, and returns an
// [UnavailableError]; pause before you call it again. Without Redis it does nothing.
func (l *Limiter) Flush(ctx context.Context) error {
	if l == nil || l.driver == nil {
		return nil
	}
	return l.driver.flush(decision.Given(ctx), reconcile.Flush{All: true})
}

// State returns the state of the connection to Redis.
func (l *Limiter) State() State {
	switch {
	case l == nil || l.driver == nil && l.closed.Load():
		return State{Mode: Closed, Nodes: 1}
	case l.driver == nil:
		return State{Mode: LocalOnly, Nodes: 1}
	}
	return *l.driver.state.Load()
}

// Fallback returns the policy for checks while Redis is unreachable, see [Options].
func (l *Limiter) Fallback() Fallback {
	if l == nil || l.driver == nil {
		return FairShare
	}
	return Fallback(l.driver.fallback)
}

// ID returns the name of this node in Redis. It is random for each start, and empty without
// Redis. It changes when another process is seen to use it, for example a clone of the
// virtual machine (see [Stats].Renames).
func (l *Limiter) ID() string {
	if l == nil || l.driver == nil {
		return ""
	}
	return *l.driver.node.Load()
}

// Stats returns what the limiter has done so far. Do not call it often: each popular key has
// its own count of what it admits, and to add up 65,536 of them takes milliseconds.
func (l *Limiter) Stats() Stats { return l.figures((*table.Table).Survey) }

// QuickStats is Stats without a look at each key, for those who ask every second. What popular keys
// have admitted since their last report is missing, and so are QueuedKeys, QuarantinedKeys and
// OldestPending.
func (l *Limiter) QuickStats() Stats {
	return l.figures(func(*table.Table, int64) (none counter.Survey) { return none })
}

// figures returns the statistics, with those that survey finds in the table at a time.
func (l *Limiter) figures(survey func(t *table.Table, now int64) counter.Survey) Stats {
	var s Stats
	if l == nil || l.table == nil {
		if l != nil {
			s.addRules(l.tally.All())
		}
		return s
	}
	// What reduces the pending units is read before what adds to them, so that their number is
	// never negative.
	s.AckedUnits, s.ForgivenUnits = l.stats.Acked.Load(), l.stats.Forgiven.Load()
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
	s.addRules(l.tally.All())
	for i := range s.Rules {
		s.Rules[i].Overshoot = l.stats.OvershootOf(s.Rules[i].Name)
	}
	if l.link != nil {
		s.UnreturnedUnits += l.link.Unreturned.Load()
		s.PendingUnits = s.AdmittedUnits - s.AckedUnits - s.ForgivenUnits - s.ExpiredUnits - s.WithdrawnUnits - s.OverflowUnits
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
	s.LiveCounters, s.Evictions, s.Overflow, s.Conflicts = ts.Live, uint64(ts.Evictions), uint64(ts.Overflow), uint64(ts.Conflicts)
	s.Remembered, s.Displaced = ts.Remembered, uint64(ts.Displaced)
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
