package limit_test

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// taker is what the code under test needs of a limiter: *hybrid.Limiter and *local.Limiter have it.
type taker interface {
	Take(key string, rule *limit.Rule, n int64) limit.Result
}

// busy is a fake that refuses everything.
type busy struct{}

func (busy) Take(string, *limit.Rule, int64) limit.Result {
	return limit.Result{RetryAfter: 90 * time.Second}
}

var perUser = limit.Must(limit.TokenBucket("per-user", 5, time.Second, 20))

// greet is the code under test.
func greet(l taker, user string) string {
	if res := l.Take(user, perUser, 1); !res.Allowed {
		seconds, _ := res.RetryAfterSeconds()
		return fmt.Sprintf("429, Retry-After: %d", seconds)
	}
	return "hello " + user
}

func ExampleResult() {
	fmt.Println(greet(busy{}, "alice"))
	// Output: 429, Retry-After: 90
}

// 10,000 requests a month, which begins on the 15th at midnight in Berlin.
func ExampleQuota() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err) // import _ "time/tzdata" if the host has no time zones
	}
	monthly := limit.Must(limit.Quota("requests", 10_000, limit.Calendar{Unit: limit.Month, Zone: berlin, First: 15}))
	fmt.Println(monthly)
	// Output: calendar "requests": 10000 per month from day 15 in Europe/Berlin
}
