package redisrate

import (
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Whatever redis_rate takes compiles, and what shares nothing is an error of each call.
func TestClients(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := client(t, server.Addr())
	cluster := redis.NewClusterClient(hybrid.RedisClusterOptions(server.Addr()))
	t.Cleanup(func() { _ = cluster.Close() })
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr()}, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = ring.Close() })
	conn := rdb.Conn()
	t.Cleanup(func() { _ = conn.Close() })
	for name, c := range map[string]redis.Scripter{
		"client": rdb, "cluster": cluster, "ring": ring, "in a smaller interface": redis.Cmdable(rdb),
		"universal": redis.UniversalClient(rdb), "that a program has wrapped": struct{ *redis.Client }{rdb},
	} {
		l := NewLimiter(c)
		if res := take(t, l, name, PerMinute(10), 1); res.Allowed != 1 {
			t.Errorf("%s: %+v", name, res)
		}
		_ = l.Close() // the embedded Redis is no Cluster
	}
	for name, c := range map[string]redis.Scripter{
		"nil": nil, "no client": (*redis.Client)(nil), "a zero client": new(redis.Client), "no cluster": (*redis.ClusterClient)(nil),
		"pipeline": rdb.Pipeline(), "transaction": rdb.TxPipeline(), "connection": conn,
	} {
		l := NewLimiter(c)
		refusesAll(t, name, l)
		if err := l.Close(); err == nil || !strings.HasPrefix(err.Error(), "redisrate: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a limiter has closed the client: %v", err)
	}
}
