package rediscell

import (
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// five returns a result as redis-cell answers it.
func five(res limit.Result) [5]int64 {
	seconds := func(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
	limited, retry := int64(0), int64(-1)
	if !res.Allowed {
		limited = 1
		if res.RetryAfter != limit.Never {
			retry = seconds(res.RetryAfter)
		}
	}
	return [5]int64{limited, res.Limit, res.Remaining, retry, seconds(res.ResetAfter)}
}
