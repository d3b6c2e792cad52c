package limit_test

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// busy refuses everything. What it embeds stands for the methods that are not called.
type busy struct{ limit.Limiter }

func (busy) Take(string, *limit.Rule, int64) limit.Result {
	return limit.Result{RetryAfter: 90 * time.Second}
}

var perUser = limit.Must(limit.TokenBucket("per-user", limit.Tokens{Burst: 20, Refill: 5, Per: time.Second}))

// greet is the code under test.
func greet(l limit.Limiter, user string) string {
	if res := l.Take(user, perUser, 1); !res.Allowed {
		seconds, _ := res.RetryAfterSeconds()
		return fmt.Sprintf("429, Retry-After: %d", seconds)
	}
	return "hello " + user
}

func ExampleLimiter() {
	fmt.Println(greet(busy{}, "alice"))
	// Output: 429, Retry-After: 90
}
