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

// Refund gives n units of key back, because the call that they were taken for did not happen, and
// returns how many: at most as many as this node knows to be counted, the newest first. Units that
// were not reported yet never will be. The others are subtracted in Redis, exactly once, with the
// next report. Of a sliding window the units of the oldest bucket count in part: then n units are
// removed, and the result is by how many fewer count now.
//
// Call it soon, on the node that has taken the units: units that have expired cannot be given back.
// While callers wait for a token bucket, on any node, they keep their times, and nothing is given back.
// So do not refund units of a bucket that is used with Wait or Reserve. A negative n, or a rule that
// [Limiter.CheckRule] rejects, gives nothing back. After Close, refunds are not reported.
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

// Charge counts n units of key, whether they fit or not, and returns how many count now. It is for a
// cost that is known only afterwards, such as the tokens of an answer: take an estimate before the
// work, and after it charge what is missing, or give back what is too much with [Limiter.Refund].
//
// Units above the limit are a debt: checks are refused until it is repaid. A token bucket repays at
// most its burst and what it gets in [Options].MaxDebt; the rest is forgiven, see
// [Stats].ForgivenUnits. A window counts all units until they leave it. Callers that have reserved
// units keep their times. A dry run counts them as well. A negative n, or a rule that
// [Limiter.CheckRule] rejects, charges nothing. After Close, charges are not reported.
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

// Set makes used units of key count, for all nodes, whatever was counted before: for example what an
// upstream service says. More than the limit is a debt. Units that this node has not reported are
// reported first: that takes up to three round trips. When Set returns nil, it is done in Redis. Other
// nodes learn of it with their next report of the key; those that refuse the key receive a notice, and
// ask within a SyncInterval, or within 5 s of their next check if the notice is lost. Units that
// another node has not reported by then are added. docs/guarantees.md says what a loss of data changes.
//
// Errors: [limit.ErrInvalidN] for used < 0, that of [Limiter.CheckRule], [limit.ErrClosed], an
// [*UnavailableError], or a [*limit.KeyError] if Redis cannot use the key. With an error it is unknown
// whether the units were set; it is safe to call Set again. A limiter without Redis sets its own counter.
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
