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

// A check needs room under each of the parts, and then counts under all of them.
func ExampleCombine() {
	api := limit.Must(limit.Combine("api", limit.Must(limit.PerSecond("api/s", 10)), limit.Must(limit.PerHour("api/h", 1000))))
	for _, part := range api.Parts() {
		fmt.Println(part)
	}
	closer := limit.Must(limit.SlidingWindowBuckets("closer", 100, time.Hour, 60)) // more buckets, less excess
	fmt.Println(closer)
	fmt.Println(api.Valid(), api.IsExact(), api.Exact().IsExact(), api.DryRun().IsDryRun())
	// Output:
	// sliding-window "api/s": 10 per second
	// sliding-window "api/h": 1000 per hour
	// sliding-window "closer": 100 per hour in 60 buckets
	// true false true true
}

// Plans: rules of one name share a counter, so an upgrade keeps what was used. Staff has no limit.
func ExampleUnlimited() {
	plans := map[string]*limit.Rule{
		"free":  limit.Must(limit.SlidingWindow("calls", 100, time.Hour)),
		"pro":   limit.Must(limit.SlidingWindow("calls", 5000, time.Hour)),
		"staff": limit.Unlimited(),
	}
	for _, plan := range []string{"free", "pro", "staff"} {
		if rule := plans[plan]; rule == limit.Unlimited() {
			fmt.Println(plan, "is not limited")
		} else {
			fmt.Println(plan, "may call", rule.Limit(), "times in", rule.Period())
		}
	}
	// Output:
	// free may call 100 times in 1h0m0s
	// pro may call 5000 times in 1h0m0s
	// staff is not limited
}
