package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

func ExampleLimiter_Allow() {
	// Without a client the limiter shares nothing; with one, this is all the
	// same. See ExampleNew.
	lim, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		panic(err)
	}
	defer lim.Close(context.Background())

	replies := limit.Must(limit.SlidingWindow("reply", 5, time.Minute))
	for range 7 {
		fmt.Println(lim.Allow("alice", replies))
	}
	fmt.Println("somebody else:", lim.Allow("bob", replies))
	// Output:
	// true
	// true
	// true
	// true
	// true
	// false
	// false
	// somebody else: true
}

func ExampleLimiter_Take() {
	lim, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		panic(err)
	}
	defer lim.Close(context.Background())

	// Holds 16, and leaks one every 2 s.
	rule := limit.Must(limit.Funnel("reply", 16, 30, time.Minute))
	res := lim.Take("alice", rule, 15)
	fmt.Println(res.Allowed, res.Remaining, "of", res.Limit)
	res = lim.Take("alice", rule, 3)
	fmt.Println(res.Allowed, "retry after", res.RetryAfter.Round(time.Second))
	// Output:
	// true 1 of 16
	// false retry after 4s
}

func ExampleLimiter_Peek() {
	lim, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		panic(err)
	}
	defer lim.Close(context.Background())

	rule := limit.Must(limit.FixedWindow("mail", 100, 24*time.Hour))
	lim.AllowN("alice", rule, 30)
	fmt.Println(lim.Peek("alice", rule).Remaining)
	fmt.Println(lim.Peek("alice", rule).Remaining)
	// Output:
	// 70
	// 70
}

func ExampleLimiter_CheckRule() {
	lim, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		panic(err)
	}
	defer lim.Close(context.Background())

	exact := limit.Must(limit.SlidingLog("login", 5, time.Minute))
	fmt.Println(errors.Is(lim.CheckRule(exact), limit.ErrUnsupported))
	fmt.Println(lim.Allow("alice", exact))
	// Output:
	// true
	// false
}

// Two processes share a limit through Redis.
func ExampleNew() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()

	ctx := context.Background()
	rule := limit.Must(limit.SlidingWindow("login", 100, 24*time.Hour))
	for process := range 2 {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		defer rdb.Close()
		lim, err := hybrid.New(rdb, hybrid.Options{})
		if err != nil {
			panic(err)
		}
		defer lim.Close(ctx)

		lim.AllowN("alice", rule, 40)
		// Reports are sent by themselves. Waiting for them is for tests, and
		// for the end of a process (see Close).
		if err := lim.Flush(ctx); err != nil {
			panic(err)
		}
		fmt.Println("process", process, "sees", lim.Peek("alice", rule).Remaining, "left")
	}
	// Output:
	// process 0 sees 60 left
	// process 1 sees 20 left
}

func ExampleOptions() {
	_, err := hybrid.New(nil, hybrid.Options{Shards: -1, SyncInterval: time.Hour})
	fmt.Println(err)
	// Output:
	// hybrid: SyncInterval 1h0m0s: must be 1ms to 1m0s
	// hybrid: Shards -1: must be 1 to 1024
}
