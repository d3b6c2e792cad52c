package httptests

import (
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Frameworks with a rate limiter of their own have a hook for another one. The examples of the files hook_*_test.go
// are what such a hook needs. Where there is no need for the framework's own middleware, take httplimit or
// grpclimit: they do more.

// perCaller admits two calls of a caller at once, and one more each hour.
var perCaller = limit.Must(limit.TokenBucket("per caller", 1, time.Hour, 2))

// shared returns the limiter of the examples. A service gives it a client of Redis, and no clock.
func shared() *hybrid.Limiter {
	return limit.Must(hybrid.New(nil, hybrid.Options{Clock: clock.NewManual(time.Unix(1_700_000_000, 0))}))
}
