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

// A request of many rows costs as many units, all or none.
func ExampleLimiter_AllowN() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	rows := limit.Must(limit.PerHour("rows", 1000))
	fmt.Println(lim.AllowN("alice", rows, 800), lim.AllowN("alice", rows, 800), lim.AllowN("alice", rows, 200))
	// Output: true false true
}

// More units than a limit holds are an error at once: no waiting helps.
func ExampleLimiter_WaitN() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	mb := limit.Must(limit.TokenBucket("megabytes", 100, time.Second, 10))
	ctx := context.Background()
	for range 3 {
		fmt.Println(lim.WaitN(ctx, "uplink", mb, 8)) // the second and third take 60 and 80 ms
	}
	fmt.Println(errors.Is(lim.WaitN(ctx, "uplink", mb, 11), limit.ErrTooMany))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// true
}

// A job of several units is planned ahead. What is not done is cancelled.
func ExampleLimiter_ReserveN() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	pages := limit.Must(limit.TokenBucket("pages", 1, time.Minute, 60))
	first := lim.ReserveN("printer", pages, 60)
	second := lim.ReserveN("printer", pages, 30)
	fmt.Println(first.Delay(), second.Delay().Round(time.Minute))
	second.Cancel(context.Background())
	fmt.Println(lim.ReserveN("printer", pages, 10).Delay().Round(time.Minute))
	fmt.Println(lim.ReserveN("printer", pages, 61).OK()) // more than the limit holds
	// Output:
	// 0s 30m0s
	// 10m0s
	// false
}

// Flush is for tests, and for the end of a batch: reports are sent by themselves.
func ExampleLimiter_Flush() {
	server, err := miniredis.Run() // in place of a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
	defer rdb.Close()
	lim := limit.Must(hybrid.New(rdb, hybrid.Options{}))
	defer lim.Close()

	lim.AllowN("alice", limit.Must(limit.PerHour("mails", 100)), 30)
	if err := lim.Flush(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(lim.Stats().PendingUnits, "units are not reported")
	// Output: 0 units are not reported
}

// While Redis is away the limiter decides by itself. A readiness probe should not fail then.
func ExampleLimiter_State() {
	server, err := miniredis.Run() // in place of a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
	defer rdb.Close()
	changes := make(chan hybrid.State, 10)
	lim := limit.Must(hybrid.New(rdb, hybrid.Options{OnStateChange: func(s hybrid.State) { changes <- s }}))
	defer lim.Close()
	await := func(mode hybrid.Mode) {
		for s := range changes {
			if s.Mode == mode {
				return
			}
		}
	}

	await(hybrid.Synced)
	fmt.Println(lim.State().Mode)
	server.SetError("LOADING Redis is loading the dataset in memory") // as after a restart
	await(hybrid.Degraded)
	fmt.Println(lim.State().Mode, lim.Allow("alice", limit.Must(limit.PerHour("mails", 100))))
	server.SetError("") // so that Close can report, and need not wait
	// Output:
	// synced
	// degraded true
}

// What was decided, by the name of the rule.
func ExampleLimiter_Stats() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	mails := limit.Must(limit.PerHour("mails", 2))
	for range 5 {
		lim.Allow("alice", mails)
	}
	s := lim.Stats()
	fmt.Println(s.Allowed, "allowed,", s.Denied, "denied,", s.AdmittedUnits, "units")
	// Output: 2 allowed, 3 denied, 2 units
}

// A program that ends reports what is pending, for as long as it has time.
func ExampleLimiter_Shutdown() {
	server, err := miniredis.Run() // in place of a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
	defer rdb.Close()
	lim := limit.Must(hybrid.New(rdb, hybrid.Options{}))
	lim.AllowN("alice", limit.Must(limit.PerHour("mails", 100)), 30)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(lim.Shutdown(ctx), lim.State().Mode)
	// Output: <nil> closed
}

// The middlewares of this project take a limiter in this form, and one of package remote as it
// is. Code that is to work with both takes an interface with these methods.
func ExampleLimiter_withContext() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	var both interface {
		Take(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error)
	} = limit.WithContext(lim)
	res, err := both.Take(context.Background(), "alice", limit.Must(limit.PerHour("mails", 100)), 1)
	fmt.Println(res.Allowed, res.Remaining, err)
	// Output: true 99 <nil>
}
