// Command before is a program that limits by redis_rate. Its argument is the address of a Redis.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-redis/redis_rate/v10"
)

func main() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	defer rdb.Close()

	limiter := redis_rate.NewLimiter(rdb)

	perUser := redis_rate.PerMinute(10)
	burst := redis_rate.Limit{Rate: 2, Burst: 20, Period: time.Hour}
	show := func(res *redis_rate.Result, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v: %d allowed, %d remain, retry after %v, full after %v\n", res.Limit, res.Allowed, res.Remaining,
			res.RetryAfter.Round(time.Second), res.ResetAfter.Round(time.Second))
	}
	for range 12 {
		show(limiter.Allow(ctx, "login:alice", perUser))
	}
	show(limiter.AllowN(ctx, "export:alice", burst, 15))
	show(limiter.AllowN(ctx, "export:alice", burst, 6))
	show(limiter.AllowN(ctx, "export:alice", burst, 21))
	show(limiter.AllowN(ctx, "export:alice", burst, 0))
	show(limiter.AllowAtMost(ctx, "export:alice", burst, 9))
	show(limiter.AllowAtMost(ctx, "export:alice", burst, 9))
	time.Sleep(100 * time.Millisecond) // in which the password turns out to be right
	if err := limiter.Reset(ctx, "login:alice"); err != nil {
		log.Fatal(err)
	}
	show(limiter.Allow(ctx, "login:alice", perUser))
	show(limiter.Allow(ctx, "login:bob", redis_rate.PerHour(3)))
	fmt.Println(redis_rate.PerSecond(5), redis_rate.Limit{}.IsZero(), perUser.IsZero())
}
