package redisrate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	redis_rate "github.com/hybridlimit/hybridlimit/compat/redisrate" // the one line that changes
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/remote"
)

func Example() {
	server, err := miniredis.Run() // in place of a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
	defer rdb.Close()

	limiter := redis_rate.NewLimiter(rdb)
	defer limiter.Close() // the other line

	for range 3 {
		res, err := limiter.Allow(context.Background(), "project:123", redis_rate.PerHour(2))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("allowed", res.Allowed, "remaining", res.Remaining)
	}
	// Output:
	// allowed 1 remaining 1
	// allowed 1 remaining 0
	// allowed 0 remaining 0
}

// By From Redis decides each check, as with redis_rate.
func ExampleFrom() {
	server, err := miniredis.Run() // in place of a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	server.SetTime(time.Unix(1_760_000_000, 0))
	rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
	defer rdb.Close()

	lim, err := remote.New(rdb, remote.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter := redis_rate.From(lim)
	burst := redis_rate.Limit{Rate: 1, Burst: 5, Period: time.Second}
	for range 2 {
		res, err := limiter.AllowAtMost(context.Background(), "project:123", burst, 3)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("allowed", res.Allowed, "remaining", res.Remaining, "full in", res.ResetAfter)
	}
	// Output:
	// allowed 3 remaining 2 full in 3s
	// allowed 2 remaining 0 full in 5s
}
