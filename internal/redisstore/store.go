package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// MaxOps is the largest number of operations of one [Batch]. A batch
	// occupies Redis for as long as it takes, about 4 µs per operation.
	MaxOps = 1000
	// MaxNodeBytes bounds the name of a node.
	MaxNodeBytes = 64
	// LedgerTTL is how long Redis remembers a node that neither sends nor
	// beats. A node that comes back later is answered as if data was lost.
	LedgerTTL = 24 * time.Hour
)

// Bucket is the units of one bucket of a window. ID is Redis' time divided by
// the length of the bucket, both in µs. Last says how long after the bucket began
// the last of them came, from 0 to the length of the bucket: it may be later, and
// crosses to Redis in µs, rounded up. See [arith.Rule.Gone].
type Bucket struct {
	ID, Units int64
	Last      time.Duration
}

// State is what Redis knows about one counter.
type State struct {
	// Err tells that this counter alone failed, with a [*limit.KeyError]; the rest
	// is zero then, but for Booked.
	Err error
	// Booked, with an Err in the answer to a batch that is sent again, tells that
	// the units were booked the first time, before the key broke.
	Booked bool
	// Gen is the generation: Redis' time in µs of the last reset or refund, 0 for
	// never.
	Gen int64
	// Born is Redis' time in µs at which the newest unit was booked, 0 if none
	// was. Content that was born before a generation is what that has cleared.
	Born int64
	// Level is the time in which a funnel will be empty, in the rule's own
	// denominator; never negative. Zero for windows.
	Level arith.Span
	// Buckets are the buckets of a window that still count, by ascending ID.
	// None for funnels.
	Buckets []Bucket
	// Converted tells that the window was last written in buckets of another
	// length: somebody uses a rule of the same name with other numbers. The
	// units may have moved by up to one of those.
	Converted bool
	// Forgiven is how many units of the operation's Debt were not booked.
	Forgiven int64
}

// Op books units on one counter, or only reads it.
type Op struct {
	// Key is the counter, from [Keyspace.CounterKey].
	Key string
	// Rule is a Funnel, SlidingWindow or FixedWindow.
	Rule *limit.Rule
	// Units are booked, even above the limit. 0 only reads.
	Units int64
	// Ahead, for a funnel, is how far into the future it would be empty if it
	// had only ever seen the sender's unsynced units; negative if these have leaked.
	Ahead arith.Span
	// Buckets, for a window, says in which bucket the units were admitted.
	// Their sum is at most Units: what no longer counts anywhere when a batch
	// is sent again is left out of them, but still booked in the ledger.
	// Buckets ahead of Redis' time are booked into the current one, and
	// buckets that no longer count are dropped.
	Buckets []Bucket
	// Back, for a funnel, and BackBuckets, for a window, are what is handed
	// back, as far as Redis counts so much: the cost of units, and units by
	// bucket. They
	// begin a new generation. They come off before Units are booked, being units
	// of earlier batches.
	Back        arith.Span
	BackBuckets []Bucket
	// BackTop is the level of a funnel above which Back does not come off: others
	// have booked behind without the sender knowing, and keep their times.
	BackTop arith.Span
	// BackGen is the generation of the key in which that was done. What a reset
	// since has cleared is not handed back again.
	BackGen int64
	// Debt, for a funnel, is how many of Units were admitted in an outage. As many of
	// them as would raise the level above Ceiling are not booked, but forgiven. The
	// level is not lowered for it: what others have booked stays.
	Debt    int64
	Ceiling arith.Span
	// Raise first merges Known into the counter: after a loss. Both are of the
	// later generation then, in which only content counts that is of it or was
	// born since it began: the maximum, where it is both. Doing so twice, or
	// from several nodes, in any order, makes no difference.
	Raise bool
	Known State
}

// Batch is what one node sends to one shard at once.
type Batch struct {
	Shard int
	Node  string // letters, digits, '-' and '_', at most MaxNodeBytes
	// Seq numbers the node's batches of the shard, from 1 on; Prev is the last
	// one that Redis has acknowledged, 0 for none. A batch without an answer is sent again
	// as it is, under the same Seq.
	Seq, Prev int64
	// Nonce is random, and the same each time the batch is sent. It tells the batch
	// from another of that number, which a copy of this process (a virtual machine
	// that was cloned) sends under the same name.
	Nonce uint64
	// Accept applies the batch although Redis does not know Prev: the sender
	// has been told of the loss.
	Accept bool
	// MaxLag is how long a node may wait before it reports units. Redis keeps counters for so
	// much longer, so that units which have leaked by themselves by then add up.
	MaxLag time.Duration
	Ops    []Op
}

// Fate is what became of a batch.
type Fate uint8

// The fates.
const (
	// FateApplied: the batch was applied.
	FateApplied Fate = iota + 1
	// FateDuplicate: it had been applied before, and was not again.
	FateDuplicate
	// FateLost: Redis does not know Prev, it has lost data. Nothing was
	// applied. Send the batch again with Accept, and Raise in every Op.
	FateLost
	// FateStale: Redis knows a later batch, this is a late copy. Nothing
	// was applied.
	FateStale
	// FateOther: the batch of this number that Redis knows is another one:
	// somebody else goes by the name of Node. This one was not applied, and will
	// not be under that name.
	FateOther
)

// String returns the fate as one lower-case word.
func (f Fate) String() string {
	switch f {
	case FateApplied:
		return "applied"
	case FateDuplicate:
		return "duplicate"
	case FateLost:
		return "lost"
	case FateStale:
		return "stale"
	case FateOther:
		return "other"
	}
	return fmt.Sprintf("fate(%d)", uint8(f))
}

// Reply is Redis' answer to a [Batch].
type Reply struct {
	Fate Fate
	// Now is Redis' time since the Unix epoch, whole µs.
	Now time.Duration
	// Total counts the units of this node in this shard that Redis has booked, or
	// forgiven, as far as it remembers: after a loss it begins again at 0.
	Total int64
	// States has one entry per Op if the fate is Applied or Duplicate, and
	// is nil otherwise.
	States []State
}

// Outcome is a reply, or why there is none: then it is unknown whether the
// batch was applied, unless the error is one of [ErrInvalidBatch].
type Outcome struct {
	Reply Reply
	Err   error
}

// ErrInvalidBatch reports a batch that contradicts itself. It was not sent. It
// arrives wrapped, with the reason in the text.
var ErrInvalidBatch = errors.New("remote: invalid batch")

// Store books and reads many counters at once, and keeps track of nodes. Build
// one with [NewStore]; the zero Store is not usable. It is safe for concurrent
// use, holds nothing that must be closed, and leaves the client to its owner.
//
// Batches of one node and shard must not be under way at the same time: the
// store does not put them in order. A nil context stands for
// [context.Background].
type Store struct {
	rdb     redis.UniversalClient
	keys    Keyspace
	timeout time.Duration
	texts   texts
	dialing atomic.Bool // connect is under way
}

// NewStore returns a store that uses rdb. It does not talk to Redis yet. The
// error names every problem of the options.
func NewStore(rdb redis.UniversalClient, o Options) (*Store, error) {
	if o.Shards == 0 {
		o.Shards = ShardsFor(rdb)
	}
	s := &Store{rdb: rdb, timeout: cmp.Or(o.CommandTimeout, DefaultCommandTimeout)}
	var err error
	if s.keys, err = NewKeyspace(o.KeyPrefix, o.Shards); s.timeout < 0 {
		err = errors.Join(err, fmt.Errorf("remote: CommandTimeout %v is negative", s.timeout))
	}
	if isNilClient(rdb) {
		err = errors.Join(errors.New("remote: the Redis client is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Keyspace returns the names of the store's keys.
func (s *Store) Keyspace() Keyspace { return s.keys }

// Exec sends batches in one pipeline and returns an outcome for each, in their
// order. They fail or succeed independently. The message, if there is one, is published
// by the same pipeline, before the batches are applied. The error is that of publishing.
func (s *Store) Exec(ctx context.Context, batches []*Batch, m *Message) (out []Outcome, published error) {
	out = make([]Outcome, len(batches))
	calls := make([]*call, 0, len(batches)+1)
	if m != nil {
		calls = append(calls, m.call())
	}
	from := make([]int, 0, len(batches)) // the i-th call with a batch is that of batches[from[i]]
	for i, b := range batches {
		c, err := s.encode(b)
		if err != nil {
			out[i].Err = err
			continue
		}
		calls, from = append(calls, c), append(from, i)
	}
	s.pipeline(ctx, calls)
	if m != nil {
		published, calls = wrap(calls[0].err), calls[1:]
	}
	for i, c := range calls {
		o := &out[from[i]]
		if o.Err = wrap(c.err); o.Err == nil {
			o.Reply, o.Err = decodeBatch(c.val, batches[from[i]].Ops)
		}
	}
	return out, published
}

// Message is what is published on a channel.
type Message struct {
	Channel string // see [Keyspace.NoticeChannel]
	Payload []byte
}

// call returns the call that publishes m. Clients of a Cluster and of a Ring are told to
// route it by its channel, as they route subscriptions: they take PUBLISH for a command
// without a key, and a Ring would send it to another server than the one that is listened to.
func (m Message) call() *call {
	return &call{args: []any{"publish", m.Channel, m.Payload}, keyAt: 1}
}

// Publish publishes one message by itself. That nobody listens is no error.
func (s *Store) Publish(ctx context.Context, m Message) error {
	c := m.call()
	s.do(ctx, c)
	return wrap(c.err)
}
