package rig

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Scan returns the keys in Redis that match a pattern, each once.
func Scan(ctx context.Context, rdb *redis.Client, pattern string) (keys []string, err error) {
	seen := map[string]bool{} // SCAN may return a key twice
	it := rdb.Scan(ctx, 0, pattern, 1000).Iterator()
	for it.Next(ctx) {
		if key := it.Val(); !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys, it.Err()
}

// LedgerPattern returns the pattern of the ledgers of all nodes under a prefix: each node has
// one per shard, in which Redis counts the units of its batches.
func LedgerPattern(prefix string) string { return prefix + ":1:{*}:node:*" }

// LedgerNode returns the name of the node whose ledger a key is.
func LedgerNode(key string) string { return key[strings.LastIndexByte(key, ':')+1:] }

// LedgerTotal returns the units in a ledger, booked or forgiven. value is
// "<seq> <nonce> <total> <failed> <forgiven>".
func LedgerTotal(key, value string) (units int64, err error) {
	var seq int64
	var nonce string
	if _, err := fmt.Sscan(value, &seq, &nonce, &units); err != nil {
		return 0, fmt.Errorf("ledger %s holds %q: %w", key, value, err)
	}
	return units, nil
}

// Bucket is a bucket of a window in Redis.
type Bucket struct{ ID, Units, Last int64 }

// Buckets returns the buckets of a window. value is
// "w <generation> <birth> <width> <id>:<units>:<last> ...".
func Buckets(key, value string) (list []Bucket, err error) {
	f := strings.Fields(value)
	if len(f) < 4 || f[0] != "w" {
		return nil, fmt.Errorf("counter %s holds %q", key, value)
	}
	for _, text := range f[4:] {
		var b Bucket
		if _, err := fmt.Sscanf(text, "%d:%d:%d", &b.ID, &b.Units, &b.Last); err != nil {
			return nil, fmt.Errorf("counter %s holds %q: %w", key, value, err)
		}
		list = append(list, b)
	}
	return list, nil
}
