package hybrid

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Limiter decides locally and reconciles with Redis. Build it with [New]; all
// methods are safe for concurrent use. A nil or zero Limiter refuses every
// check.
//
// One Limiter is one node: a process needs only one, for any number of rules
// and keys.
type Limiter struct {
	// Go puts 8 bytes before an object of this size. With these, the cells of tally
	// begin where cache lines do.
	_     [56]byte
	tally tally

	table  *table.Table
	clock  clock.Clock
	link   *table.Link
	driver *driver       // nil: local only
	alone  chan struct{} // closed: the notifier has ended; nil: it is the driver's
	stats  counters
	lines  table.Lines
	notify *notifier
	misuse misuse
	// Who waits for a window lets the others hear of what was admitted here.
	patience time.Duration
	closed   atomic.Bool
}

// New returns a running limiter that shares its limits through rdb, a client
// of one server, a Sentinel group or a Cluster. It does not wait for Redis: a
// limiter that is made while Redis is down works, degraded. A nil rdb makes a
// limiter that shares nothing. The limiter never closes or reconfigures rdb.
//
// Bad options are an error that names each of them. Settings of the client under
// which deadlines do not hold, or calls are repeated, are an event ([EventClient]); see
// [RedisOptions].
func New(rdb redis.UniversalClient, o Options) (*Limiter, error) {
	l, err := build(rdb, o)
	if err == nil && l.driver != nil {
		l.driver.begin()
	}
	return l, err
}

// build returns a limiter that does not run yet.
func build(rdb redis.UniversalClient, o Options) (*Limiter, error) {
	if o.Shards == 0 {
		o.Shards = redisstore.ShardsFor(rdb)
	}
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	l := &Limiter{clock: clock.Forward(o.Clock), patience: 2 * o.SyncInterval}
	if rdb != nil {
		l.link = table.NewLink(o.pace(), o.Shards)
		l.link.SetMaxDebt(o.MaxDebt)
		ks, err := redisstore.NewKeyspace(o.KeyPrefix, o.Shards)
		if err != nil {
			return nil, fmt.Errorf("hybrid: %w", err)
		}
		l.link.SetShards(ks.Shard)
	}
	var err error
	l.table, err = table.New(table.Options{MaxKeys: o.MaxKeys, Clock: o.Clock, Link: l.link, Conflict: l.conflict})
	if err != nil {
		return nil, fmt.Errorf("hybrid: %w", err)
	}
	l.notify = newNotifier(o, l.Stats, func() { l.stats.hookPanics.Add(1) })
	if rdb == nil {
		l.alone = make(chan struct{})
		go func() {
			defer close(l.alone)
			_ = l.notify.run() // it returns no error
		}()
		return l, nil
	}
	if l.driver, err = newDriver(rdb, o, l); err != nil {
		l.table.Close()
		return nil, err
	}
	for _, fault := range faultsOf(rdb) {
		l.notify.happened(Event{Kind: EventClient, Time: time.Unix(0, l.now()), Reason: fault})
	}
	return l, nil
}

func (l *Limiter) now() int64 { return int64(l.clock.Now()) }

// CheckRule reports whether this limiter can decide rule: an error wrapping
// [limit.ErrNilRule] or [limit.ErrUnsupported] if not. Checks with such a rule
// are refused and counted in [Stats].Invalid.
func (l *Limiter) CheckRule(rule *limit.Rule) error {
	switch {
	case !rule.Valid():
		return fmt.Errorf("hybrid: %w", limit.ErrNilRule)
	case rule.Algorithm() == limit.AlgorithmSlidingLog:
		return fmt.Errorf("hybrid: %w: %v: a sliding log cannot be merged from batches; use a sliding window here, or package remote for an exact log", limit.ErrUnsupported, rule)
	}
	return nil
}

func (l *Limiter) usable(rule *limit.Rule, n int64) bool {
	return l != nil && l.table != nil && n >= 0 && rule.Valid() && rule.Algorithm() != limit.AlgorithmSlidingLog
}

// Allow reports whether one unit of key is admitted under rule, and consumes
// it if so.
func (l *Limiter) Allow(key string, rule *limit.Rule) bool { return l.AllowN(key, rule, 1) }

// AllowN reports whether n units are admitted, all or none. No units are
// always admitted; a negative number, or a rule that [Limiter.CheckRule]
// finds fault with, is refused.
func (l *Limiter) AllowN(key string, rule *limit.Rule, n int64) bool {
	if !l.usable(rule, n) {
		l.invalid(key, rule, n)
		return false
	}
	ok, src, counted := l.table.AllowBy(l.clock, key, rule, n)
	switch {
	case counted && n > 1:
		l.tally.together(n, src)
	case counted:
	case !ok && rule.IsDryRun():
		l.tally.pass()
		return true
	case n == 1:
		l.tally.countOne(ok, src)
	default:
		l.tally.count(n, ok, src)
	}
	return ok
}

// Take is [Limiter.AllowN] with the whole answer.
func (l *Limiter) Take(key string, rule *limit.Rule, n int64) limit.Result {
	if !l.usable(rule, n) {
		return l.invalid(key, rule, n)
	}
	res, counted := l.table.Take(l.clock, key, rule, n)
	if counted {
		return res
	}
	return l.judge(rule, n, res)
}

// judge counts a decision, and returns it as it is to be told.
func (l *Limiter) judge(rule *limit.Rule, n int64, res limit.Result) limit.Result {
	if !res.Allowed && rule.IsDryRun() {
		l.tally.pass()
		return rule.Judged(res)
	}
	l.tally.count(n, res.Allowed, res.Source)
	return res
}

// Peek tells what Take of one unit would answer, without consuming it or
// counting as a decision: Allowed says whether there is room, RetryAfter when
// there will be. A key that is not in memory is described as an unused one.
func (l *Limiter) Peek(key string, rule *limit.Rule) limit.Result {
	if !l.usable(rule, 1) {
		return l.invalid(key, rule, 1)
	}
	return rule.Judged(l.table.Peek(l.clock, key, rule))
}

// Flush reconciles every key in memory with Redis now: what is pending is
// booked, and every view is fetched anew. It waits until that is done or ctx
// is. While Redis cannot be reached it probes once, whatever the back-off says,
// and returns an [UnavailableError]: pause before you call again. Without Redis
// it does nothing.
func (l *Limiter) Flush(ctx context.Context) error {
	if l == nil || l.driver == nil {
		return nil
	}
	return l.driver.flush(orBackground(ctx), true)
}

// State returns the connection's state.
func (l *Limiter) State() State {
	if l == nil {
		return State{Mode: Closed, Nodes: 1}
	}
	if l.driver == nil {
		m := LocalOnly
		if l.closed.Load() {
			m = Closed
		}
		return State{Mode: m, Nodes: 1}
	}
	return *l.driver.state.Load()
}

// ID returns the name under which this node is known in Redis, random for each
// start; empty without Redis. It changes when another process is seen to use it: a
// clone of the virtual machine, for example (see [Stats].Renames).
func (l *Limiter) ID() string {
	if l == nil || l.driver == nil {
		return ""
	}
	return *l.driver.node.Load()
}

// Stats returns what the limiter has done so far. It is for somebody who looks from time
// to time: busy keys count what they admit each by itself, and to ask 65,536 of them
// takes 1 ms.
func (l *Limiter) Stats() Stats {
	var s Stats
	if l == nil || l.table == nil {
		if l != nil {
			l.tally.sum(&s, [table.Sources]int64{})
		}
		return s
	}
	// What reduces the pending units is read before what adds to them, so that
	// a snapshot taken in between never shows a negative number.
	s.AckedUnits, s.ForgivenUnits = l.stats.acked.Load(), l.stats.forgiven.Load()
	if l.link != nil {
		s.ExpiredUnits, s.WithdrawnUnits = l.link.Expired(), l.link.Withdrawn()
		s.ForgivenUnits += l.link.Forgiven()
	}
	s.RefundedUnits, s.RefundsGivenUp = l.stats.refunded.Load(), l.stats.givenUp.Load()
	shared := l.tally.sum(&s, l.table.Admitted())
	if l.link != nil {
		s.PendingUnits = shared - s.AckedUnits - s.ForgivenUnits - s.ExpiredUnits - s.WithdrawnUnits
		s.OverflowUnits = s.AdmittedUnits - shared
	}
	ts := l.table.Stats()
	s.LiveCounters, s.Evictions, s.Overflow, s.Conflicts = ts.Live, uint64(ts.Evictions), uint64(ts.Overflow), uint64(ts.Conflicts)
	c := &l.stats
	s.Batches, s.KeysSynced, s.ResentBatches = c.batches.Load(), c.keysSynced.Load(), c.resent.Load()
	s.Heartbeats, s.Failures, s.Losses = c.beats.Load(), c.failures.Load(), c.losses.Load()
	s.RolledBackKeys, s.Quarantined = c.rolledBack.Load(), c.quarantined.Load()
	s.Renames, s.Mismatches, s.Behind = c.renames.Load(), c.mismatches.Load(), time.Duration(c.behind.Load())
	s.BadReplies, s.StateChanges = c.badReplies.Load(), c.stateChanges.Load()
	s.HookPanics, s.Overshoot = c.hookPanics.Load(), c.overshoot.Load()
	return s
}

// Close reports what is pending, tells the other nodes that this one leaves,
// and stops every goroutine. While Redis cannot be reached it goes on asking for as
// long as ctx lasts, unless nothing is pending or only an operator can mend what is
// wrong (a password, a permission). If ctx ends first, or a
// key there is broken, it stops all the same and returns an error that says
// how many units Redis has not been told of. A ctx without a deadline gets one
// of 5 s. Who is waiting (see [Limiter.Wait]) stops waiting. Further calls do
// nothing.
//
// Checks after Close are still answered, from memory alone and by the
// fallback policy.
func (l *Limiter) Close(ctx context.Context) error {
	if l == nil || l.table == nil || !l.closed.CompareAndSwap(false, true) {
		return nil
	}
	var err error
	l.lines.Close() // what they hand back is still reported
	if l.driver != nil {
		err = l.driver.close(orBackground(ctx))
	} else {
		err = l.endAlone(orBackground(ctx))
	}
	l.table.Close()
	return err
}

// endAlone stops the notifier of a limiter without Redis.
func (l *Limiter) endAlone(ctx context.Context) error {
	ctx, cancel := withDefaultDeadline(ctx)
	defer cancel()
	l.notify.stop()
	select {
	case <-l.alone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hybrid: close: a call of OnEvent or of the logger still hangs: %w", ctx.Err())
	}
}

// withDefaultDeadline bounds what the caller has not bounded.
func withDefaultDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, defaultCloseTimeout)
}

// orBackground lets a nil context pass, in calls that end by themselves.
func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// defaultCloseTimeout bounds the last calls of Redis when the caller's
// context does not.
const defaultCloseTimeout = 5 * time.Second
