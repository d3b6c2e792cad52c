package hybrid

import (
	"context"
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeAtMost admits what is left of key, up to n units, and returns how many it has
// admitted. Allowed says whether it has admitted any; if not, RetryAfter is how long until
// there will be one. 0 units consume nothing and are allowed. An invalid check gets nothing.
// A dry run grants all n, and consumes all or none.
func (l *Limiter) TakeAtMost(key string, rule *limit.Rule, n int64) (granted int64, res limit.Result) {
	usable := l.usable(rule, n)
	switch {
	case !usable && !l.combined(rule, n):
		return 0, l.invalid(key, rule, n)
	case rule.IsDryRun():
		return n, l.Take(key, rule, n)
	case !usable:
		return decision.TakeLeft(n,
			func() limit.Result { return l.Peek(key, rule) },
			func(n int64) limit.Result { return l.Take(key, rule, n) })
	}
	granted, res = l.table.TakeAtMost(key, rule, n, l.now())
	l.tally.Of(rule).Count(granted, res.Allowed, res.Source)
	return granted, res
}

// Refund gives n units of key back, because the call that they were taken for did not
// happen. It returns how many were given back: at most as many as this node knows to be
// counted, so that a key never admits more than if it had not been used. The newest units
// are given back first. Units that were not reported to Redis yet never will be. The others
// are subtracted in Redis, exactly once, with the next report, and the other nodes learn of
// it as of any report. In a sliding window the units of the oldest bucket count in part:
// then n units are removed, and the result is by how many fewer count now.
//
// Call it on the node that has taken the units, and soon. A unit that has expired cannot be
// given back: a newer one would be given back instead. Reported units of a leaky bucket cannot be
// given back either while callers wait who have reserved ahead of time, and so have filled it beyond
// its capacity: they keep their times. If Redis finds such a reservation that this node does not
// know, the units still count. [Stats].UnreturnedUnits counts what is not given back.
//
// A negative n, or a rule that [Limiter.CheckRule] rejects, gives nothing back. After
// Close, refunds are not reported to Redis.
func (l *Limiter) Refund(key string, rule *limit.Rule, n int64) (back int64) {
	if !l.usable(rule, n) {
		return l.least(key, rule, n, func(part *limit.Rule) int64 { return l.Refund(key, part, n) })
	}
	back = l.table.Refund(key, rule, n, l.now())
	l.returned(n, back)
	return back
}

// returned counts how many of n units were given back.
func (l *Limiter) returned(n, back int64) {
	l.stats.Refunded.Add(back)
	l.stats.Unreturned.Add(min(n, arith.MaxUnits) - back)
}

// Charge counts n units of key, whether they fit or not, and returns how many count now. It is for
// a cost that is known only afterwards, such as the tokens of an answer: take an estimate before
// the work, and after it charge what is missing, or give back what is too much with
// [Limiter.Refund]. Like any units, charged ones are reported to Redis exactly once, also after an
// outage.
//
// Units above the limit are a debt: checks are refused until it is repaid. A leaky bucket is
// raised to at most its capacity and what leaks in [Options].MaxDebt. If several nodes charge the
// same key, Redis holds to that as well, to a unit. The rest is forgiven, see
// [Stats].ForgivenUnits. A window
// counts all units until they leave it. Callers that have reserved units keep their times. In an
// outage charged units count as those of a check do, see [Options].Fallback.
//
// A charge consumes units under a dry run as well. A negative n, or a rule that [Limiter.CheckRule]
// rejects, charges nothing. After Close, charges are not
// reported to Redis.
func (l *Limiter) Charge(key string, rule *limit.Rule, n int64) (charged int64) {
	if !l.usable(rule, n) {
		return l.least(key, rule, n, func(part *limit.Rule) int64 { return l.Charge(key, part, n) })
	}
	n = min(n, arith.MaxUnits)
	charged, src := l.table.Charge(key, rule, n, l.now())
	l.tally.Of(rule).Charge(n, src)
	l.stats.Charged.Add(n)
	l.stats.Forgiven.Add(n - charged)
	return charged
}

// Reset sets the used units of key to 0, for all nodes. See [Limiter.Set].
func (l *Limiter) Reset(ctx context.Context, key string, rule *limit.Rule) error {
	return l.Set(ctx, key, rule, 0)
}

// Set sets the used units of key to used, whatever was counted before: for example to what
// an upstream service says in a header. More than the limit is a debt. It takes a round
// trip.
//
// Units that this node has admitted and not yet reported are reported first, which takes up to two
// round trips more. When Set returns nil, it is done in Redis and known to this node. The other nodes
// learn of it with their next report of the key. Nodes that refuse the key receive a notice at
// once, and ask Redis within a SyncInterval (see [Options].PollOnly); if the notice is lost,
// within 5 s of their next check. Units that another node has admitted but not reported by
// then are added.
//
// Earlier states do not come back, not even after Redis has lost data. This node remembers
// the new state for as long as an earlier one could matter (the window, or the time in
// which a full leaky bucket drains), and so does every node that has learnt it. A node that
// has not learnt it may report before those nodes have restored it. Then what it knew is
// added, and the key admits less.
//
// Errors: [limit.ErrInvalidN] for used < 0, that of [Limiter.CheckRule], [limit.ErrClosed],
// an [*UnavailableError] if Redis could not be reached, or a [*limit.KeyError] if the key
// is unusable there. With an error it is unknown whether the units were set; it is safe to
// call Set again. A limiter without Redis sets its own counter.
func (l *Limiter) Set(ctx context.Context, key string, rule *limit.Rule, used int64) error {
	if err := l.CheckRule(rule); err != nil {
		return err
	}
	switch {
	case used < 0:
		return fmt.Errorf("hybrid: %w: %d", limit.ErrInvalidN, used)
	case l == nil || l.table == nil || l.closed.Load():
		return fmt.Errorf("hybrid: set: %w", limit.ErrClosed)
	case rule.Parts() != nil:
		return decision.EachPart(rule, func(part *limit.Rule) error { return l.Set(ctx, key, part, used) })
	case l.driver == nil:
		l.table.Set(key, rule, used, l.now())
		return nil
	}
	l.awaitReport(decision.Given(ctx), key, rule)
	sent := l.now()
	done, err := l.driver.store.Renew(decision.Given(ctx), key, rule, used)
	if err != nil {
		return explain("set", err)
	}
	now := l.now()
	l.table.Renew(key, rule, now, reconcile.Renewal(sent, now, done))
	if used < rule.Limit() {
		l.driver.announceRoom(l.driver.store.Keyspace().RoomNotice(rule, key, done))
	}
	return nil
}

// awaitReport waits until Redis has counted what this node has admitted of a key. One exchange may be under way
// already, so there may be two. It does not wait for units that come meanwhile.
func (l *Limiter) awaitReport(ctx context.Context, key string, rule *limit.Rule) {
	ctx, cancel := context.WithTimeout(ctx, l.driver.exact.timeout)
	defer cancel()
	for range 2 {
		c := l.table.Find(key, rule)
		if c == nil {
			return
		}
		if ended := c.AwaitReport(l.now()); ended == nil || !l.driver.await(ctx, ended) {
			return
		}
	}
}

// explain returns the error of a single exchange as an error of this package.
func explain(what string, err error) error {
	return fmt.Errorf("hybrid: %s: %w", what, public(err))
}

// public returns an error of Redis as callers know it: an [*UnavailableError], or one that says what
// cannot be decided.
func public(err error) error {
	var key *limit.KeyError
	if errors.As(err, &key) || errors.Is(err, limit.ErrInvalidN) {
		return reconcile.Plain(err)
	}
	if away, ok := err.(*UnavailableError); ok {
		return away
	}
	_, reason := redisstore.Classify(err)
	return &UnavailableError{Reason: reason, err: reconcile.Plain(err)}
}

// preloadStep is how many keys Preload fetches at a time.
const preloadStep = 1000

// Preload fetches what Redis knows about keys before they are checked, a thousand at a
// time. Without it the first checks of a key are decided before the first answer has come.
// It returns when all of them are known. A key in use is fetched only if its state is old.
// If there are more keys than Options.MaxKeys, they evict each other.
//
// Errors: that of [Limiter.CheckRule], [limit.ErrClosed], the error of ctx, or an
// [*UnavailableError] while Redis cannot be reached; some of the keys may be known then.
// Without Redis there is nothing to fetch, and it returns nil.
func (l *Limiter) Preload(ctx context.Context, keys []string, rule *limit.Rule) error {
	if err := l.CheckRule(rule); err != nil {
		return err
	}
	switch {
	case l == nil || l.table == nil || l.closed.Load():
		return fmt.Errorf("hybrid: preload: %w", limit.ErrClosed)
	case rule.Parts() != nil:
		return decision.EachPart(rule, func(part *limit.Rule) error { return l.Preload(ctx, keys, part) })
	case l.driver == nil:
		return nil
	}
	ctx = decision.Given(ctx)
	for len(keys) > 0 {
		n := min(len(keys), preloadStep)
		for _, key := range keys[:n] {
			l.table.Touch(key, rule, l.now())
		}
		if err := l.driver.flush(ctx, reconcile.Flush{}); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}
