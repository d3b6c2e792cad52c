package remote

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// MaxChecks is the largest number of checks of one [Limiter.TakeAll], which
// occupies Redis for all of them. Windows are read bucket by bucket: all checks
// together may have no more than 20,000, where one of a sliding window has a
// bucket more than its rule says, and one of another kind has one.
const MaxChecks = 1000

// Limiter asks Redis for every decision, one round trip each. Build one with
// [New]; the zero Limiter is not usable. It is safe for concurrent use, holds
// nothing that must be closed, and leaves the client to its owner.
//
// It promises no more than one execution per call: when the answer is lost or
// late, the units may have been taken or not, and the error does not tell. A nil
// context stands for [context.Background].
type Limiter struct{ asks *redisstore.Limiter }

// New returns a limiter that uses rdb, a client, a failover client or a cluster
// client. It does not talk to Redis yet. The error names every problem of the
// options.
func New(rdb redis.UniversalClient, o Options) (*Limiter, error) {
	asks, err := redisstore.New(rdb, redisstore.Options(o))
	if err != nil {
		return nil, err
	}
	return &Limiter{asks}, nil
}

// Shard returns the shard of a key, from 0 on: keys of one shard can be asked for
// together, see [Limiter.TakeAll].
func (l *Limiter) Shard(key string) int { return l.asks.Keyspace().Shard(key) }

// Take asks for n units of key under rule: all of them or none. A refusal
// costs nothing. More units than the limit holds are refused with
// [limit.Never]; 0 units only look.
//
// A rule that is a dry run lets everything pass, see [limit.Result.WouldRefuse];
// errors stay errors.
//
// Errors: [limit.ErrInvalidN] for n < 0 and [limit.ErrNilRule] for a nil or zero
// rule (nothing was asked of Redis), a [*limit.KeyError] for an unusable key,
// [ErrBadReply], the context's error, or what go-redis reports; see [Classify].
// With an error the Result is a refusal and says nothing about the key.
func (l *Limiter) Take(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	return l.asks.Take(ctx, key, rule, n)
}

// Peek tells what Take of one unit would answer, without taking it or writing
// to Redis. The errors are those of [Limiter.Take].
func (l *Limiter) Peek(ctx context.Context, key string, rule *limit.Rule) (limit.Result, error) {
	return l.asks.Peek(ctx, key, rule)
}

// TakeAtMost takes what is left of key under rule, up to n units, and returns
// how many those are. Allowed tells whether it was any; if not, RetryAfter is
// when there will be one. 0 units only look.
//
// A dry run grants n in any case: it takes all of them or, where so many are
// not left, none.
//
// The errors are those of [Limiter.Take].
func (l *Limiter) TakeAtMost(ctx context.Context, key string, rule *limit.Rule, n int64) (granted int64, res limit.Result, err error) {
	return l.asks.TakeAtMost(ctx, key, rule, n)
}

// TakeAll asks for the units of all checks in one step: each of them consumes
// its own, or none does, and nothing is written. By says which check
// decided; its Result is what [Limiter.Take] would have answered. No checks are
// allowed.
//
// The units of checks of one counter (the same key, algorithm and name) add up:
// each of them must admit the sum, also where their rules differ in the limit.
// Where they differ in more, they are refused: each would re-express what the other
// has counted. A dry run stands in nobody's way: if it would refuse, its own units
// are not consumed, and those of the others are; and its units are not part of the
// sum for those that are no dry run.
//
// On a Redis Cluster, and on a [redis.Ring], all keys must be in one shard: the
// rules of one key are, different keys need not be. [Limiter.Shard] tells.
//
// Errors: [limit.ErrInvalidN], [limit.ErrNilRule] and [limit.ErrUnsupported] (a
// rule, two rules of one counter, the keys' shards, or too many buckets), with the
// index of the check in the text, and another for more than [MaxChecks]: nothing
// was asked of Redis. A [*limit.KeyError] for an unusable key: nothing was consumed.
// All others as for Take. With an error the result is a refusal; By is the check
// to blame, -1 if there is none.
func (l *Limiter) TakeAll(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	return l.asks.TakeAll(ctx, checks...)
}

// Wait returns nil as soon as n units of key are admitted; they are consumed
// then. At once, and without consuming anything, it returns a [*limit.WaitError]
// when that would take longer than ctx lasts, or for ever. If ctx ends before,
// what was booked is handed back, and the error is that of ctx, joined by what
// went wrong in booking or handing back: then it is unknown whether the units
// still count, as with every other error of Redis. The answer to a booking is
// waited for even if ctx ends meanwhile, for [Options.CommandTimeout] at most:
// whoever does not hear it cannot hand anything back.
//
// Those who wait for a leaky bucket are served in the order in which Redis heard of
// them, on whichever process they are. A window and a log cannot be booked ahead:
// whoever waits for one asks again when there should be room, and who gets it is
// a matter of luck; large n may be overtaken by small ones again and again.
//
// 0 units are not waited for, nor is a dry run. The other errors are those of
// [Limiter.Take].
func (l *Limiter) Wait(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	return l.asks.Wait(ctx, key, rule, n)
}

// Refund hands n units of key back, because the call that they were taken for
// did not happen: as far as so many are there, the newest first. It returns by how
// many fewer count now: the units of the oldest bucket of a sliding window count in part,
// or not any more. Like every call of this package it is executed once at most: with an
// error it is unknown whether they were handed back.
//
// Of a leaky bucket that is fuller than full nothing is handed back: somebody may have
// booked ahead, and keeps his time, so that newcomers would be admitted at that
// time once more.
//
// It begins a new generation of the key, so that nodes that hold a view of it
// (package hybrid) do not take the difference for a loss of data. If units came back it
// tells these nodes, as [Limiter.Set] does.
//
// The errors are those of [Limiter.Take].
func (l *Limiter) Refund(ctx context.Context, key string, rule *limit.Rule, n int64) (back int64, err error) {
	return l.asks.Refund(ctx, key, rule, n)
}

// Reset forgets what has been used of key under rule. It is [Limiter.Set] to 0, and tells the
// nodes of package hybrid that there is room.
func (l *Limiter) Reset(ctx context.Context, key string, rule *limit.Rule) error {
	return l.asks.Reset(ctx, key, rule)
}

// Set makes used units of key count, whatever was counted before: what an
// upstream service says, for example. More than the limit is a debt; a sliding
// log holds no more than its limit. It raises the key's generation, so that
// nodes that still hold an older view of it (package hybrid) drop that view
// instead of restoring it.
//
// If there is room afterwards it publishes that on the channel of these nodes, so that
// those which refuse the key ask for it at once instead of after up to 5 s. That takes a
// second round trip where there is such a channel, and the user of the server needs +publish and
// access to the channels hl:* (hl being the KeyPrefix); without it the call works, but the nodes
// hear nothing.
//
// The errors are those of [Limiter.Take]. An unusable key is not repaired.
func (l *Limiter) Set(ctx context.Context, key string, rule *limit.Rule, used int64) error {
	return l.asks.Set(ctx, key, rule, used)
}
