package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/decision"
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

// Verdict is the outcome of a batch.
type Verdict uint8

// The verdicts.
const (
	// VerdictApplied: the batch was applied.
	VerdictApplied Verdict = iota + 1
	// VerdictDuplicate: it had been applied before, and was not again.
	VerdictDuplicate
	// VerdictLost: Redis does not know Prev, it has lost data. Nothing was
	// applied. Send the batch again with Accept, and Restore in every report.
	VerdictLost
	// VerdictStale: Redis knows a later batch, so this is a late copy. Nothing
	// was applied.
	VerdictStale
	// VerdictOther: Redis knows another batch of this number: another process uses the
	// name of Node. This batch was not applied, and will not be under that name.
	VerdictOther
)

// Reply is Redis' answer to a [Batch].
type Reply struct {
	Verdict Verdict
	// Now is Redis' time since the Unix epoch, whole µs.
	Now time.Duration
	// States has one entry per report if the verdict is Applied or Duplicate, and
	// is nil otherwise.
	States []report.State
}

// Outcome is a reply, or why there is none: see [MayHaveRun].
type Outcome struct {
	Reply Reply
	Err   error
}

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
	apart   bool // the client spreads the shards over several servers
	cluster bool // it is one of a Cluster, whose servers pass on to each other what is published
	timeout time.Duration
	lacking sync.Map    // keys are scripts that a server lacks, as *script, until one gets their text
	dialing atomic.Bool // connect is making a connection

	ahead atomic.Int64 // of our clock is Redis', ns, by the latest beat or call that measured it
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
	if why := unusable(rdb); why != nil {
		err = errors.Join(why, err)
	}
	if err != nil {
		return nil, err
	}
	switch rdb.(type) {
	case *redis.Ring, // which would send all keys of a call to the server of the first one
		interface{ ReloadState(context.Context) }:
		s.apart = s.keys.Shards() > 1
	}
	_, s.cluster = rdb.(masters)
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
		calls = append(calls, s.publishes(*m))
	}
	for _, b := range batches {
		calls = append(calls, s.encode(b))
	}
	s.pipeline(ctx, calls)
	if m != nil {
		published, calls = Wrap(calls[0].err), calls[1:]
	}
	for i, c := range calls {
		if out[i].Err = Wrap(c.err); c.err == nil {
			out[i].Reply, out[i].Err = decodeBatch(c.val, batches[i].Ops)
		}
		for _, st := range out[i].Reply.States {
			s.otherPeriod(st.Err)
		}
	}
	return out, published
}

// Message is what is published on a channel.
type Message struct {
	Channel string // see [Keyspace.NoticeChannel]
	Payload []byte
	Via     int // shard whose master publishes it, on a Cluster
}

// masters is a client of a Cluster.
type masters interface {
	MasterForKey(context.Context, string) (*redis.Client, error)
}

// ringClient is a client of a Ring.
type ringClient interface {
	GetShardClientForKey(string) (*redis.Client, error)
}

// publishes returns the call that publishes m. With keyAt, clients of a Cluster and of a Ring
// route it by its channel, as they route subscriptions: they take PUBLISH for a command
// without a key, and a Ring would send it to another server than that of the subscribers.
// A script has a key, so that another master of a Cluster can publish while that of the channel
// is away.
func (s *Store) publishes(m Message) *call {
	if s.cluster && m.Via != 0 {
		return &call{args: []any{"eval", "return redis.call('PUBLISH', ARGV[1], ARGV[2])", 1, s.keys.SeqKey(m.Via, "-"), m.Channel, m.Payload}}
	}
	return &call{args: []any{"publish", m.Channel, m.Payload}, keyAt: 1}
}

// Publish publishes one message by itself. It is no error if there is no subscriber.
func (s *Store) Publish(ctx context.Context, m Message) error {
	c := s.publishes(m)
	s.do(ctx, c)
	return Wrap(c.err)
}

// Defaults and bounds of [Options].
const (
	// DefaultKeyPrefix begins the name of every key.
	DefaultKeyPrefix = "hl"
	// MaxKeyPrefixBytes bounds the prefix.
	MaxKeyPrefixBytes = 64
	// DefaultShards is the number of shards for all clients but those of a single
	// server or a Sentinel group, for which it is 1: see [ShardsFor].
	DefaultShards = 64
	// MaxShards bounds the number of shards.
	MaxShards = 1024
	// DefaultCommandTimeout is the deadline of a call to Redis.
	DefaultCommandTimeout = 250 * time.Millisecond
	// MostPatience bounds how long package hybrid waits for a call to a distant Redis, as a
	// multiple of its CommandTimeout. RedisOptions of that package sets such time-outs.
	MostPatience = 8
)

// Options says where a store keeps its counters, and how long a call may take. The zero value is ready
// for use.
type Options struct {
	KeyPrefix      string
	Shards         int // default [ShardsFor] the client
	CommandTimeout time.Duration
}

// ShardsFor returns how many shards are the default for a client: 1 for a single server
// or a Sentinel group, so that the keys of one report share a script call; DefaultShards
// for a Cluster, whose masters share them, and for clients of an unknown type.
func ShardsFor(rdb redis.UniversalClient) int {
	if _, single := rdb.(*redis.Client); single {
		return 1
	}
	return DefaultShards
}

// unusable returns why a client cannot be used at all: the methods of such a client panic. A constructor
// that failed may have left a nil pointer in the interface.
func unusable(rdb redis.UniversalClient) error {
	v := reflect.ValueOf(rdb)
	if rdb == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("remote: the Redis client is nil")
	}
	switch rdb.(type) {
	case *redis.Client, *redis.ClusterClient, *redis.Ring:
		if v.Elem().IsZero() {
			return fmt.Errorf("remote: the Redis client is a zero %T, which no constructor has made", rdb)
		}
	}
	return nil
}

// Deadline returns a context that ends after the time of one call. A nil ctx does not end before.
func (s *Store) Deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(decision.Given(ctx), s.timeout)
}

// Within calls the client with the deadline of a call. The error is wrapped as those of other calls.
func (s *Store) Within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := s.Deadline(ctx)
	defer cancel()
	return Wrap(guarded(func() error { return f(ctx) }))
}

// Servers returns for each shard the address of the server that holds it, as far as the
// client knows it, and "" where it does not. The address of a Sentinel group is the same
// whichever server is the master. A client that is neither a [redis.Client], a
// [redis.ClusterClient] nor a [redis.Ring], nor embeds one, knows none.
//
// It rarely uses the network: only if a client of a Cluster has not asked yet where the
// slots are. Then it waits for a quarter of the CommandTimeout at the most.
func (s *Store) Servers(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(decision.Given(ctx), s.timeout/4)
	defer cancel()
	addrs := make([]string, s.keys.Shards())
	for i := range addrs {
		_ = guarded(func() (err error) { // after a panic of a foreign client it stays unknown
			addrs[i], err = addrOf(ctx, s.rdb, s.keys.SeqKey(i, "-"))
			return err
		})
	}
	return addrs
}

// addrOf returns the address of the server that holds a key; "" if it is unknown.
func addrOf(ctx context.Context, rdb redis.UniversalClient, key string) (string, error) {
	var c interface{ Options() *redis.Options }
	var err error
	switch rdb := rdb.(type) {
	case interface{ Options() *redis.Options }: // a single server's
		c = rdb
	case masters:
		c, err = rdb.MasterForKey(ctx, key)
	case ringClient:
		c, err = rdb.GetShardClientForKey(key)
	}
	if err != nil || c == nil {
		return "", err
	}
	return c.Options().Addr, nil
}

// Dials returns how often the client had no free connection and made one, for any of its users. With a
// client of a Cluster it uses the network if no call has succeeded yet.
func (s *Store) Dials() (n uint32) {
	_ = guarded(func() error { // after a panic of a foreign client it stays 0
		if p := s.rdb.PoolStats(); p != nil {
			n = p.Misses
			if p.PipelineStats != nil {
				n += p.PipelineStats.Misses
			}
		}
		return nil
	})
	return n
}
