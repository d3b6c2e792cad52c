package remote

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Limiter asks Redis for every decision, one round trip each. Build one with
// [New]; the zero Limiter is not usable. It is safe for concurrent use, holds
// nothing that must be closed, and does not close the client.
//
// Each call is executed at most once. If the answer is lost or late, the units may
// have been taken or not, and the error does not say which. A nil context stands
// for [context.Background].
type Limiter struct {
	store *redisstore.Store

	channelName  atomic.Value // a string, see channel; "": there is none, or it cannot be used
	channelUntil atomic.Int64 // until when the name is used, ns by the system's clock
}

// New returns a limiter that uses rdb, a client, a failover client or a cluster
// client. It does not call Redis yet. The error names every problem of the
// options.
func New(rdb redis.UniversalClient, o Options) (*Limiter, error) {
	store, err := redisstore.NewStore(rdb, redisstore.Options(o))
	if err != nil {
		return nil, err
	}
	return &Limiter{store: store}, nil
}

// Shard returns the shard of a key, from 0 on. Keys of one shard can be checked
// together, see [Limiter.TakeAll].
func (l *Limiter) Shard(key string) int { return l.store.Keyspace().Shard(key) }

// Allow is [Limiter.AllowN] of one unit.
func (l *Limiter) Allow(ctx context.Context, key string, rule *limit.Rule) (bool, error) {
	return l.AllowN(ctx, key, rule, 1)
}

// AllowN is [Limiter.Take] with only whether the units were admitted. With an error they were
// not.
func (l *Limiter) AllowN(ctx context.Context, key string, rule *limit.Rule, n int64) (bool, error) {
	res, err := l.Take(ctx, key, rule, n)
	return res.Allowed, err
}

// Take takes n units of key under rule: all of them or none. A refusal consumes
// nothing. More units than the limit holds are refused with [limit.Never]; 0 units
// only read.
//
// A rule that is a dry run admits everything, see [limit.Result.WouldRefuse];
// errors are returned as without it.
//
// Errors: [limit.ErrInvalidN] for n < 0 and [limit.ErrNilRule] for a nil or zero
// rule (Redis was not called), a [*limit.KeyError] for an unusable key,
// [ErrBadReply], the context's error, or what go-redis reports; see [Classify].
// With an error the Result is a refusal and says nothing about the key.
func (l *Limiter) Take(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	if rule.Parts() != nil && n > 0 {
		v, err := l.TakeAll(ctx, decision.AppendParts(nil, key, rule, n)...)
		return v.Result, err
	}
	return l.ask(ctx, redisstore.Book, key, rule, n)
}

// Peek returns what Take of one unit would answer, without taking it or writing
// to Redis. The errors are those of [Limiter.Take].
func (l *Limiter) Peek(ctx context.Context, key string, rule *limit.Rule) (limit.Result, error) {
	return l.ask(ctx, redisstore.Look, key, rule, 1)
}

// ask takes or reads the units of one key.
func (l *Limiter) ask(ctx context.Context, mode redisstore.TakeMode, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	if err := decision.Askable(rule, n); err != nil {
		return decision.Invalid(rule), redisstore.Wrap(err)
	}
	v, err := l.askAll(ctx, mode, decision.AppendParts(nil, key, rule, n))
	if err != nil {
		return decision.Failed(rule), err
	}
	return v.Result, nil
}

// TakeAtMost takes what is left of key under rule, up to n units, and returns
// how many it took. Allowed reports whether it took any; if not, RetryAfter is how
// long until one unit can be taken. 0 units only read.
//
// A dry run always grants n: it consumes all n units or, if fewer are left, none.
//
// The errors are those of [Limiter.Take].
func (l *Limiter) TakeAtMost(ctx context.Context, key string, rule *limit.Rule, n int64) (granted int64, res limit.Result, err error) {
	if rule.IsDryRun() {
		if res, err = l.Take(ctx, key, rule, n); err == nil {
			granted = n
		}
		return granted, res, err
	}
	if rule.Parts() != nil && n > 0 {
		return l.takePartsAtMost(ctx, key, rule, n)
	}
	if !rule.Valid() || min(n, rule.Limit()) <= 0 {
		res, err = l.Take(ctx, key, rule, min(n, 1))
		return 0, res, err
	}
	return l.takeMost(ctx, redisstore.Ask{Counter: l.store.Keyspace().CounterKey(rule, key), Rule: rule, Units: min(n, rule.Limit())})
}

// takeMost takes as many units as there is room for.
func (l *Limiter) takeMost(ctx context.Context, q redisstore.Ask) (granted int64, res limit.Result, err error) {
	t, _, err := l.store.Take(ctx, redisstore.Most, q)
	if err != nil {
		return 0, decision.Failed(q.Rule), err
	}
	return t.Answers[0].Units, t.Answers[0].Result(1), nil
}

// Charge counts n units of key, whether they fit or not, and returns how many count now. It is for
// a cost that is known only afterwards: take an estimate before the work, and after it charge what
// is missing, or give back what is too much with [Limiter.Refund].
//
// Units above the limit are a debt: checks are refused until it is repaid. A token bucket
// owes at most as many units as it holds, and a sliding log none; the rest is forgiven. A
// window counts all units until they leave it. Callers that have reserved units keep their times. A
// dry run consumes them as well.
//
// The errors are those of [Limiter.Take]: with one of Redis it is unknown whether the units were
// charged.
func (l *Limiter) Charge(ctx context.Context, key string, rule *limit.Rule, n int64) (charged int64, err error) {
	if err := decision.Askable(rule, n); err != nil || n == 0 {
		return 0, redisstore.Wrap(err)
	}
	if rule.Parts() != nil {
		return leastOf(rule, func(part *limit.Rule) (int64, error) { return l.Charge(ctx, key, part, n) })
	}
	q := redisstore.Ask{Counter: l.store.Keyspace().CounterKey(rule, key), Rule: rule, Units: min(n, arith.MaxUnits), Forced: true}
	switch arith.Of(rule).Algorithm {
	case arith.SlidingLog:
		q.Units = min(n, rule.Limit())
	case arith.TokenBucket:
		q.Units, q.Ahead = min(n, 2*rule.Limit()), arith.Of(rule).Full.Ceil()
	}
	if q.Units == 0 { // nothing can be charged under a limit of 0
		return 0, nil
	}
	charged, _, err = l.takeMost(ctx, q)
	return charged, err
}

// Refund subtracts n units from the count of key, because the call that they were taken for did not
// happen: at most as many as count, the newest first. It returns by how many fewer count now: units of the
// oldest bucket of a sliding window count in part. Of a token bucket nothing is refunded while callers
// wait who have booked ahead: they keep their times.
//
// It begins a new generation of the key, so that nodes of package hybrid do not take the difference for a
// loss of data, and notifies them as [Limiter.Set] does. The errors are those of [Limiter.Take]. With an
// error it is unknown whether the units were refunded.
func (l *Limiter) Refund(ctx context.Context, key string, rule *limit.Rule, n int64) (back int64, err error) {
	return l.refund(ctx, key, rule, n, nil)
}

// refund is Refund, limited to the units of one booking unless of is nil.
func (l *Limiter) refund(ctx context.Context, key string, rule *limit.Rule, n int64, of *redisstore.Booking) (back int64, err error) {
	if err := decision.Askable(rule, n); err != nil || n == 0 {
		return 0, redisstore.Wrap(err)
	}
	if rule.Parts() != nil {
		return leastOf(rule, func(part *limit.Rule) (int64, error) { return l.Refund(ctx, key, part, n) })
	}
	ctx, cancel := l.store.Deadline(ctx)
	defer cancel()
	back, done, err := l.store.Refund(ctx, key, rule, n, of)
	if err == nil && back > 0 {
		l.tellRoom(ctx, key, rule, done)
	}
	return back, err
}

// Reset clears the count of key under rule. It is [Limiter.Set] to 0, and so notifies the nodes
// of package hybrid that there is room.
func (l *Limiter) Reset(ctx context.Context, key string, rule *limit.Rule) error {
	return l.Set(ctx, key, rule, 0)
}

// Set replaces the count of key by used units, for example by what an upstream
// service reports. More than the limit is a debt; a sliding log holds at most its
// limit. It begins a new generation of the key, so that nodes that still hold an
// older view of it (package hybrid) drop that view instead of restoring it.
//
// If there is room afterwards, it publishes that on the channel of these nodes, so that
// those which refuse the key ask for it at once instead of after up to 5 s. If there is such
// a channel, that takes a second round trip, and the Redis user needs +publish and access to
// the channels hl:* (hl being the KeyPrefix). Without these rights the call works, but the
// nodes are not notified.
//
// The errors are those of [Limiter.Take]. An unusable key is not repaired.
func (l *Limiter) Set(ctx context.Context, key string, rule *limit.Rule, used int64) error {
	if rule.Parts() != nil {
		return decision.EachPart(rule, func(part *limit.Rule) error { return l.Set(ctx, key, part, used) })
	}
	ctx, cancel := l.store.Deadline(ctx)
	defer cancel()
	done, err := l.store.Renew(ctx, key, rule, used)
	if err == nil && used < rule.Limit() {
		l.tellRoom(ctx, key, rule, done)
	}
	return err
}
