// Package rediscell is a service before and after it has moved from redis-cell.
package rediscell

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// before returns whether to serve a user, and if not, the seconds to wait.
func before(ctx context.Context, rdb *redis.Client, user string) (ok bool, wait int64, err error) {
	five, err := rdb.Do(ctx, "CL.THROTTLE", "api:"+user, 15, 30, 60, 1).Int64Slice()
	if err != nil {
		return false, 0, err
	}
	if len(five) != 5 {
		return false, 0, fmt.Errorf("CL.THROTTLE: %d numbers", len(five))
	}
	return five[0] == 0, max(five[3], 0), nil
}
