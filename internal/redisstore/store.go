package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/report"
)

const (
	// MaxOps is the largest number of operations of one [Batch]. A batch
	// occupies Redis for as long as it takes, about 4 µs per operation.
	MaxOps = 1000
	// MaxNodeBytes bounds the name of a node.
	MaxNodeBytes = 64
	// LedgerTTL is how long Redis keeps the ledger of a node that sends neither batches
	// nor heartbeats. A node that comes back later is answered as if data was lost.
	LedgerTTL = 24 * time.Hour
)

// Batch is what one node sends to one shard at once.
type Batch struct {
	Shard int
	Node  string // letters, digits, '-' and '_', at most MaxNodeBytes
	// Seq numbers the node's batches of the shard, from 1 on; Prev is the last
	// one that Redis has acknowledged, 0 for none. A batch without an answer is sent again
	// as it is, under the same Seq.
	Seq, Prev int64
	// Nonce is random, and the same each time the batch is sent. It distinguishes the
	// batch from one of the same number that a copy of this process (a virtual machine
	// that was cloned) sends under the same name.
	Nonce uint64
	// Accept applies the batch although Redis does not know Prev: the sender knows of
	// the data loss.
	Accept bool
	// MaxLag is how long a node may wait before it reports units. Redis keeps counters this
	// much longer, so that units of several nodes add up even if those of each have leaked by then.
	MaxLag time.Duration
	Ops    []report.Report
}

// Fate is the outcome of a batch.
type Fate uint8

// The fates.
const (
	// FateApplied: the batch was applied.
	FateApplied Fate = iota + 1
	// FateDuplicate: it had been applied before, and was not again.
	FateDuplicate
	// FateLost: Redis does not know Prev, it has lost data. Nothing was
	// applied. Send the batch again with Accept, and Raise in every report.
	FateLost
	// FateStale: Redis knows a later batch, so this is a late copy. Nothing
	// was applied.
	FateStale
	// FateOther: Redis knows another batch of this number: another process uses the
	// name of Node. This batch was not applied, and will not be under that name.
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
	// States has one entry per report if the fate is Applied or Duplicate, and
	// is nil otherwise.
	States []report.State
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
// use, holds nothing that must be closed, and does not close the client.
//
// Batches of one node and shard must not be sent concurrently: the store does not
// put them in order. A nil context stands for
// [context.Background].
type Store struct {
	rdb     redis.UniversalClient
	keys    Keyspace
	timeout time.Duration
	texts   texts
	dialing atomic.Bool // connect is making a connection
}

// NewStore returns a store that uses rdb. It does not call Redis yet. The
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

// call returns the call that publishes m. With keyAt, clients of a Cluster and of a Ring
// route it by its channel, as they route subscriptions: they take PUBLISH for a command
// without a key, and a Ring would send it to another server than that of the subscribers.
func (m Message) call() *call {
	return &call{args: []any{"publish", m.Channel, m.Payload}, keyAt: 1}
}

// Publish publishes one message by itself. It is no error if there is no subscriber.
func (s *Store) Publish(ctx context.Context, m Message) error {
	c := m.call()
	s.do(ctx, c)
	return wrap(c.err)
}
