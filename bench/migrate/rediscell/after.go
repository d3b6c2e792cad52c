package rediscell

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// A max_burst of 15 is 16 at once.
var perUser = limit.Must(limit.TokenBucket("api", 30, time.Minute, 16)) // built once

// after returns whether to serve a user, and if not, the seconds to wait.
func after(ctx context.Context, lim *remote.Limiter, user string) (ok bool, wait int64, err error) {
	res, err := lim.Take(ctx, user, perUser, 1)
	seconds, _ := res.RetryAfterSeconds()
	return res.Allowed, int64(seconds), err
}
