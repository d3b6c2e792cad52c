package redisstore

import (
	"context"
	"reflect"
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
	// MaxShards bounds the number of shards.
	MaxShards = 1024
	// DefaultCommandTimeout is the deadline of a call to Redis.
	DefaultCommandTimeout = 250 * time.Millisecond
	// MostPatience bounds how long package hybrid waits for a call to a distant Redis, as a
	// multiple of its CommandTimeout. RedisOptions of that package sets such time-outs.
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
// for a Cluster, whose masters share them, and for clients of an unknown type.
func ShardsFor(rdb redis.UniversalClient) int {
	if _, single := rdb.(*redis.Client); single {
		return 1
	}
	return DefaultShards
}

// isNilClient also recognises a nil pointer inside the interface, which a
// constructor that failed may have left there.
func isNilClient(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return rdb == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// Deadline returns a context that ends after the time of one call. A nil ctx does not end before.
func (s *Store) Deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(given(ctx), s.timeout)
}

// Within calls the client with the deadline of a call. The error is wrapped as those of other calls.
func (s *Store) Within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := s.Deadline(ctx)
	defer cancel()
	return wrap(guarded(func() error { return f(ctx) }))
}

// given returns ctx, or one that does not end if ctx is nil.
func given(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
