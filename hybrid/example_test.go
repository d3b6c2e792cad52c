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
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	replies := limit.Must(limit.PerMinute("reply", 5))
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
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	// Holds 16, and leaks one every 2 s.
	rule := limit.Must(limit.TokenBucket("reply", 30, time.Minute, 16))
	res := lim.Take("alice", rule, 15)
	fmt.Println(res.Allowed, res.Remaining, "of", res.Limit)
	res = lim.Take("alice", rule, 3)
	fmt.Println(res.Allowed, "retry after", res.RetryAfter.Round(time.Second))
	// Output:
	// true 1 of 16
	// false retry after 4s
}

func ExampleLimiter_Peek() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	rule := limit.Must(limit.FixedWindow("mail", 100, 24*time.Hour))
	lim.AllowN("alice", rule, 30)
	fmt.Println(lim.Peek("alice", rule).Remaining)
	fmt.Println(lim.Peek("alice", rule).Remaining)
	// Output:
	// 70
	// 70
}

func ExampleLimiter_CheckRule() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

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
		defer lim.Shutdown(ctx)

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

// What is left is better than nothing: a batch job takes what it can get.
func ExampleLimiter_TakeAtMost() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	rows := limit.Must(limit.FixedWindow("rows", 1000, 24*time.Hour))
	for range 3 {
		granted, _ := lim.TakeAtMost("nightly export", rows, 600)
		fmt.Println(granted)
	}
	// Output:
	// 600
	// 400
	// 0
}

// A call that did not happen does not count.
func ExampleLimiter_Refund() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	mails := limit.Must(limit.PerHour("mails", 100))
	if lim.AllowN("alice", mails, 30) {
		send := func() error { return errors.New("no connection") }
		if err := send(); err != nil {
			lim.Refund("alice", mails, 30)
		}
	}
	fmt.Println(lim.Peek("alice", mails).Remaining)
	// Output: 100
}

// An operator frees somebody, on every node.
func ExampleLimiter_Reset() {
	ctx := context.Background()
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Shutdown(ctx)

	logins := limit.Must(limit.PerHour("logins", 3))
	for range 5 {
		lim.Allow("alice", logins)
	}
	fmt.Println(lim.Allow("alice", logins))
	if err := lim.Reset(ctx, "alice", logins); err != nil {
		panic(err)
	}
	fmt.Println(lim.Allow("alice", logins))
	// Output:
	// false
	// true
}

// The service that we call says how much of its own limit is used up.
func ExampleLimiter_Set() {
	ctx := context.Background()
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Shutdown(ctx)

	upstream := limit.Must(limit.FixedWindow("upstream", 5000, time.Hour))
	header := int64(4990) // X-RateLimit-Used
	if err := lim.Set(ctx, "our account", upstream, header); err != nil {
		panic(err)
	}
	fmt.Println(lim.Peek("our account", upstream).Remaining)
	// Output: 10
}

// One key of a user and an action: at most maxCount actions per period.
func Example_compositeKey() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	isActionAllowed := func(user, action string, period time.Duration, maxCount int64) bool {
		rule, err := limit.SlidingWindow("action", maxCount, period)
		return err == nil && lim.Allow(limit.JoinKey(user, action), rule)
	}
	for range 3 {
		fmt.Println(isActionAllowed("alice", "reply", time.Minute, 2))
	}
	fmt.Println(isActionAllowed("alice", "like", time.Minute, 2))
	// Output:
	// true
	// true
	// false
	// true
}

// Several limits of one caller, and one of the tenant, in one question: either
// all of them are charged or none is.
func ExampleLimiter_TakeAll() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	perMinute := limit.Must(limit.FixedWindow("user, minute", 3, time.Minute))
	perDay := limit.Must(limit.FixedWindow("user, day", 100, 24*time.Hour))
	perTenant := limit.Must(limit.FixedWindow("tenant, day", 1000, 24*time.Hour))
	for range 4 {
		v := lim.TakeAll(
			limit.Check{Key: "alice", Rule: perMinute, N: 1},
			limit.Check{Key: "alice", Rule: perDay, N: 1},
			limit.Check{Key: "acme", Rule: perTenant, N: 1},
		)
		if !v.Allowed {
			fmt.Println("refused by", v.Rule.Name())
		}
	}
	fmt.Println(lim.Peek("alice", perDay).Remaining, lim.Peek("acme", perTenant).Remaining)
	// Output:
	// refused by user, minute
	// 97 997
}

// Jobs that can wait are spread out instead of being refused.
func ExampleLimiter_Wait() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	uploads := limit.Must(limit.TokenBucket("uploads", 50, time.Second, 1)) // one every 20 ms
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 3 {
		fmt.Println(lim.Wait(ctx, "alice", uploads))
	}
	hurried, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	fmt.Println(errors.Is(lim.Wait(hurried, "alice", uploads), context.DeadlineExceeded))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// true
}

// A caller who cannot wait here learns when to come back, with a place in the queue.
func ExampleLimiter_Reserve() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	reports := limit.Must(limit.TokenBucket("reports", 6, time.Hour, 2)) // one in ten minutes
	for range 4 {
		r := lim.Reserve("alice", reports)
		fmt.Println(r.OK(), r.Delay().Round(time.Minute))
	}
	// Output:
	// true 0s
	// true 0s
	// true 10m0s
	// true 20m0s
}

// What a new limit would do, before it does it.
func ExampleLimiter_Take_dryRun() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	searches := limit.Must(limit.PerMinute("searches", 2)).DryRun()
	for range 4 {
		res := lim.Take("alice", searches, 1)
		fmt.Println(res.Allowed, res.WouldRefuse)
	}
	fmt.Println(lim.Stats().WouldRefuse, "would have been refused")
	// Output:
	// true false
	// true false
	// true true
	// true true
	// 2 would have been refused
}

// A node that starts fetches what others have counted before it serves.
func ExampleLimiter_Preload() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()
	ctx := context.Background()
	start := func() *hybrid.Limiter {
		lim, err := hybrid.New(redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true}), hybrid.Options{})
		if err != nil {
			panic(err)
		}
		return lim
	}
	rule := limit.Must(limit.SlidingWindow("login", 100, 24*time.Hour))
	old := start()
	old.AllowN("alice", rule, 90)
	if err := old.Shutdown(ctx); err != nil { // reports
		panic(err)
	}

	lim := start()
	defer lim.Shutdown(ctx)
	if err := lim.Preload(ctx, []string{"alice", "bob"}, rule); err != nil {
		panic(err)
	}
	fmt.Println(lim.AllowN("alice", rule, 20), lim.AllowN("bob", rule, 20))
	// Output: false true
}

// A plan per customer: the rule is chosen with each call. Rules of one name
// continue one counter, so that who changes plan keeps what was used.
func Example_plans() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	plans := map[string]*limit.Rule{
		"free": limit.Must(limit.FixedWindow("api", 10, 24*time.Hour)),
		"paid": limit.Must(limit.FixedWindow("api", 1000, 24*time.Hour)),
	}
	lim.AllowN("alice", plans["free"], 10)
	fmt.Println(lim.Peek("alice", plans["free"]).Remaining)
	fmt.Println(lim.Peek("alice", plans["paid"]).Remaining) // upgraded
	lim.AllowN("alice", plans["paid"], 500)
	fmt.Println(lim.Peek("alice", plans["free"]).Remaining) // and back
	// Output:
	// 0
	// 990
	// 0
}
