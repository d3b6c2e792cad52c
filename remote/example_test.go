package remote_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

func ExampleLimiter_Take() {
	server, err := miniredis.Run() // in place of a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	server.SetTime(time.Unix(1_760_000_000, 0))

	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	lim, err := remote.New(rdb, remote.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// At most 2 replies at once, and one more every 30 seconds.
	replies := limit.Must(limit.TokenBucket("reply", 1, 30*time.Second, 2))
	for range 3 {
		res, err := lim.Take(context.Background(), "user:17", replies, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(res.Allowed, res.Remaining, res.RetryAfter)
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 30s
}

// embedded returns a limiter on a Redis within this process, in place of a real
// one, and what stops both.
func embedded() (lim *remote.Limiter, stop func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	server.SetTime(time.Unix(1_760_000_000, 0))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	return limit.Must(remote.New(rdb, remote.Options{})), func() {
		rdb.Close()
		server.Close()
	}
}

func ExampleLimiter_TakeAll() {
	lim, stop := embedded()
	defer stop()
	// At most 4 in a second, and 5 in a minute; the second call would be one
	// too many for the minute, and takes nothing from the second either.
	second := limit.Must(limit.PerSecond("second", 4))
	minute := limit.Must(limit.FixedWindow("minute", 5, time.Minute))
	for range 2 {
		v, err := lim.TakeAll(context.Background(),
			limit.Check{Key: "user:17", Rule: second, N: 3},
			limit.Check{Key: "user:17", Rule: minute, N: 3},
		)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(v.Allowed, v.Rule.Name(), v.Remaining, v.RetryAfter)
	}
	// Output:
	// true second 1 0s
	// false minute 2 40s
}

func ExampleLimiter_Reserve() {
	lim, stop := embedded()
	defer stop()
	jobs := limit.Must(limit.TokenBucket("job", 1, time.Minute, 1))
	for range 3 {
		r, err := lim.Reserve(context.Background(), "batch", jobs)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.OK(), r.Delay())
		if r.Delay() > time.Minute { // too late for this one: let others have it
			fmt.Println("given up:", r.Cancel(context.Background()))
		}
	}
	// Output:
	// true 0s
	// true 1m0s
	// true 2m0s
	// given up: <nil>
}

// What is above the limit is a debt. Keys of one shard can be checked together on a Cluster.
func ExampleLimiter_Charge() {
	lim, stop := embedded()
	defer stop()

	rows := limit.Must(limit.FixedWindow("rows", 100, 24*time.Hour))
	charged, err := lim.Charge(context.Background(), "report", rows, 150)
	fmt.Println(charged, err, lim.Shard("report"))
	// Output: 150 <nil> 0
}

// The class of an error says whether to wait, to call somebody, or to delete a key.
func ExampleClassify() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	lim := limit.Must(remote.New(rdb, remote.Options{}))

	_, err := lim.Allow(context.Background(), "alice", limit.Must(limit.PerMinute("api", 100)))
	switch class, reason := remote.Classify(err); class {
	case remote.ClassUnavailable:
		fmt.Println("try again later:", reason)
	case remote.ClassMisconfigured:
		fmt.Println("call an operator:", reason)
	case remote.ClassKey:
		fmt.Println("delete the key:", reason)
	}
	// Output: try again later: refused
}
