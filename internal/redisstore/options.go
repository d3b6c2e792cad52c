package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Defaults and bounds of [Options].
const (
	// DefaultKeyPrefix begins the name of every key.
	DefaultKeyPrefix = "hl"
	// MaxKeyPrefixBytes bounds the prefix.
	MaxKeyPrefixBytes = 64
	// DefaultShards is the number of shards for all clients but those of a single
	// server or a Sentinel group, for which it is 1: see [ShardsFor].
	DefaultShards = 64
	// MaxShards bounds it.
	MaxShards = 1024
	// DefaultCommandTimeout is the deadline of a call to Redis.
	DefaultCommandTimeout = 250 * time.Millisecond
	// MostPatience bounds how long package hybrid waits for a call of a Redis that is far away,
	// in times of its CommandTimeout, and so the time-outs of the clients that it is given.
	MostPatience = 8
)

// Options are those of package remote, which documents them. The zero value is ready
// for use.
type Options struct {
	KeyPrefix      string
	Shards         int // default [ShardsFor] the client
	CommandTimeout time.Duration
}

// ShardsFor returns how many shards are the default for a client: 1 for a single server
// or a Sentinel group, so that the keys of one report share a script call; DefaultShards
// for a Cluster, whose masters share them, and for clients of which nothing is known.
func ShardsFor(rdb redis.UniversalClient) int {
	if _, single := rdb.(*redis.Client); single {
		return 1
	}
	return DefaultShards
}

// withDefaults returns o with its zero fields filled in.
func (o Options) withDefaults() Options {
	if o.KeyPrefix == "" {
		o.KeyPrefix = DefaultKeyPrefix
	}
	if o.Shards == 0 {
		o.Shards = DefaultShards
	}
	if o.CommandTimeout == 0 {
		o.CommandTimeout = DefaultCommandTimeout
	}
	return o
}

// validate reports every problem of completed options at once.
func (o Options) validate() error {
	errs := []error{validateKeyspace(o.KeyPrefix, o.Shards)}
	if o.CommandTimeout < 0 {
		errs = append(errs, fmt.Errorf("remote: CommandTimeout %v is negative", o.CommandTimeout))
	}
	return errors.Join(errs...)
}

func validateKeyspace(prefix string, shards int) error {
	var errs []error
	if len(prefix) > MaxKeyPrefixBytes {
		errs = append(errs, fmt.Errorf("remote: KeyPrefix has %d bytes, at most %d are allowed", len(prefix), MaxKeyPrefixBytes))
	}
	if strings.ContainsAny(prefix, "{}") {
		errs = append(errs, fmt.Errorf("remote: KeyPrefix %.80q contains a brace, which would change where keys live in a cluster", prefix))
	}
	if shards < 1 || shards > MaxShards {
		errs = append(errs, fmt.Errorf("remote: Shards is %d, must be 1 to %d", shards, MaxShards))
	}
	return errors.Join(errs...)
}

// server is what Limiter and Store share: a client and how to use it.
type server struct {
	rdb     redis.UniversalClient
	keys    Keyspace
	timeout time.Duration
	texts   texts
	dialing atomic.Bool // connect is under way
}

func newServer(rdb redis.UniversalClient, o Options) (*server, error) {
	if o.Shards == 0 {
		o.Shards = ShardsFor(rdb)
	}
	o = o.withDefaults()
	err := o.validate()
	if isNilClient(rdb) {
		err = errors.Join(errors.New("remote: the Redis client is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	return &server{rdb: rdb, keys: Keyspace{prefix: o.KeyPrefix, shards: o.Shards}, timeout: o.CommandTimeout}, nil
}

// isNilClient also recognises a nil pointer inside the interface, which a
// constructor that failed may have left there.
func isNilClient(rdb redis.UniversalClient) bool {
	switch c := rdb.(type) {
	case nil:
		return true
	case *redis.Client:
		return c == nil
	case *redis.ClusterClient:
		return c == nil
	case *redis.Ring:
		return c == nil
	}
	return false
}

// deadline bounds one call.
func (s *server) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(given(ctx), s.timeout)
}

// given takes no context for one that does not end.
func given(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
