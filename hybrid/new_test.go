package hybrid

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
)

// Where the keys of a single server are needs no answer. Of a client that hides what it is,
// nobody knows: each shard travels by itself.
func TestOnlyServerIsKnown(t *testing.T) {
	rdb := redis.NewClient(RedisOptions("127.0.0.1:1")) // it is not asked
	defer func() { _ = rdb.Close() }()
	for want, client := range map[int]redis.UniversalClient{1: rdb, 8: struct{ redis.UniversalClient }{rdb}} {
		l, err := build(client, Options{Shards: 8})
		if err != nil {
			t.Fatal(err)
		}
		var is reconcile.Snapshot
		if l.driver.machine.Snapshot(&is); len(is.Servers) != want {
			t.Errorf("%T: %d servers, want %d", client, len(is.Servers), want)
		}
		l.table.Close()
	}
}
