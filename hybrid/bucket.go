package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
)

func toRemote(in []table.Bucket) []redisstore.Bucket {
	if len(in) == 0 {
		return nil
	}
	out := make([]redisstore.Bucket, len(in))
	for i, b := range in {
		out[i] = redisstore.Bucket(b)
	}
	return out
}

func toLocal(in []redisstore.Bucket) []table.Bucket {
	out := make([]table.Bucket, len(in))
	for i, b := range in {
		out[i] = table.Bucket(b)
	}
	return out
}
