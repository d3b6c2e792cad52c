// Command before does the jobs of a list in Redis: 10 at once, then 20 a second.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// limiter is what the worker needs of a rate limiter.
type limiter interface {
	Allow() bool
	Wait(ctx context.Context) error
	Limit() rate.Limit
	SetLimit(r rate.Limit)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	defer rdb.Close()
	limiter := rate.NewLimiter(20, 10)
	work(ctx, rdb, limiter)
}

// work does jobs until there are none. It prints each.
func work(ctx context.Context, rdb *redis.Client, l limiter) {
	for {
		job, err := rdb.LPop(ctx, "jobs").Result()
		if err != nil {
			break
		}
		if job == "slow down" {
			l.SetLimit(l.Limit() / 2)
			continue
		}
		if !l.Allow() {
			if err := l.Wait(ctx); err != nil {
				break
			}
		}
		fmt.Println(job)
	}
	fmt.Println("done, at", l.Limit(), "a second")
}
