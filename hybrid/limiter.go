package hybrid

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
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
	case arith.Of(rule).Algorithm == arith.SlidingLog:
		return fmt.Errorf("hybrid: %w: %v: a sliding log cannot be merged from batches; use a sliding window here, or package remote for an exact log", limit.ErrUnsupported, rule)
	}
	return nil
}

// usable reports whether the table can decide a check. If not, the rule may be combined, or the check is
// invalid.
func (l *Limiter) usable(rule *limit.Rule, n int64) bool {
	return l != nil && l.table != nil && n >= 0 && rule.Valid() && arith.Of(rule).Algorithm < arith.SlidingLog
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
