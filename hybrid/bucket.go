package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// toRemote converts the buckets of a counter to those of a batch.
func toRemote(in []counter.Bucket) []redisstore.Bucket {
	if len(in) == 0 {
		return nil
	}
	out := make([]redisstore.Bucket, len(in))
	for i, b := range in {
		out[i] = redisstore.Bucket(b)
	}
	return out
}

// toLocal converts the buckets of a reply to those of a counter.
func toLocal(in []redisstore.Bucket) []counter.Bucket {
	out := make([]counter.Bucket, len(in))
	for i, b := range in {
		out[i] = counter.Bucket(b)
	}
	return out
}
