package bench

import (
	"context"
	"testing"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Other people's limiters that ask a Redis with every check: a real one on the
// loopback interface, the nearest that a Redis can be.

// served returns a client with its library's defaults.
func served(tb testing.TB) *redis.Client {
	server := redistest.Start(tb)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

// openRedisRate runs one script per check.
func openRedisRate(tb testing.TB, _ []string, rule *limit.Rule) asks {
	return redisRateAsks(redis_rate.NewLimiter(served(tb)), rule)
}

// openRedisRatePipelined is the same over go-redis' own automatic pipelining: calls of goroutines that wait
// at the same time travel together.
func openRedisRatePipelined(tb testing.TB, _ []string, rule *limit.Rule) asks {
	pipelined, err := served(tb).AutoPipeline()
	if err != nil {
		tb.Fatal(err)
	}
	return redisRateAsks(redis_rate.NewLimiter(pipelined), rule)
}

func redisRateAsks(l *redis_rate.Limiter, rule *limit.Rule) asks {
	ctx := context.Background()
	at := redis_rate.Limit{Rate: int(arith.Of(rule).Units), Burst: int(rule.Limit()), Period: rule.Period()}
	return asks{
		allow: func(key string) bool {
			res, err := l.Allow(ctx, key, at)
			return err == nil && res.Allowed == 1
		},
		peek: func(key string) bool {
			res, err := l.AllowN(ctx, key, at, 0)
			return err == nil && res.Remaining > 0
		},
	}
}
