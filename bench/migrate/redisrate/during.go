package redisrate

import (
	"context"

	"github.com/go-redis/redis_rate/v10"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// during is for the time of the switch: redis_rate decides, hybridlimit counts along.
func during(ctx context.Context, old *redis_rate.Limiter, lim *hybrid.Limiter, user string) (ok, differs bool, err error) {
	res, err := old.Allow(ctx, user, redis_rate.PerMinute(120))
	if err != nil {
		return false, false, err
	}
	if res.Allowed == 0 {
		return false, lim.Peek(user, perUser).Allowed, nil
	}
	return true, lim.Take(user, perUser.DryRun(), 1).WouldRefuse, nil
}
