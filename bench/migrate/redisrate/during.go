package redisrate

import (
	"context"

	"github.com/go-redis/redis_rate/v10"

	"github.com/hybridlimit/hybridlimit/compat/redisrate"
)

// during is for the time of the switch: redis_rate decides, hybridlimit counts along.
func during(ctx context.Context, old *redis_rate.Limiter, lim *redisrate.Limiter, key string) (*redis_rate.Result, error) {
	res, err := old.Allow(ctx, key, redis_rate.PerMinute(120))
	if err == nil && res.Allowed > 0 {
		_, err = lim.Allow(ctx, key, redisrate.PerMinute(120)) // what it answers does not matter yet
	}
	return res, err
}
