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

// embedded returns a limiter on a Redis within this process, in place of a real
// one, and what stops both.
func embedded() (lim *remote.Limiter, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	server.SetTime(time.Unix(1_760_000_000, 0))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	lim, err = remote.New(rdb, remote.Options{})
	if err != nil {
		panic(err)
	}
	return lim, func() {
		rdb.Close()
		server.Close()
	}
}

func ExampleLimiter_TakeAtMost() {
	lim, stop := embedded()
	defer stop()
	rows := limit.Must(limit.Funnel("rows", 100, 10, time.Second))
	for range 2 {
		granted, _, err := lim.TakeAtMost(context.Background(), "export", rows, 60)
		fmt.Println(granted, err)
	}
	// Output:
	// 60 <nil>
	// 40 <nil>
}

func ExampleLimiter_Refund() {
	lim, stop := embedded()
	defer stop()
	ctx := context.Background()
	mails := limit.Must(limit.PerHour("mails", 100))
	if _, err := lim.Take(ctx, "alice", mails, 30); err != nil {
		panic(err)
	}
	back, err := lim.Refund(ctx, "alice", mails, 20)
	fmt.Println(back, err)
	res, err := lim.Peek(ctx, "alice", mails)
	fmt.Println(res.Remaining, err)
	// Output:
	// 20 <nil>
	// 90 <nil>
}

func ExampleLimiter_Set() {
	lim, stop := embedded()
	defer stop()
	ctx := context.Background()
	upstream := limit.Must(limit.FixedWindow("upstream", 5000, time.Hour))
	fmt.Println(lim.Set(ctx, "our account", upstream, 4990))
	res, err := lim.Peek(ctx, "our account", upstream)
	fmt.Println(res.Remaining, err)
	fmt.Println(lim.Reset(ctx, "our account", upstream))
	res, err = lim.Peek(ctx, "our account", upstream)
	fmt.Println(res.Remaining, err)
	// Output:
	// <nil>
	// 10 <nil>
	// <nil>
	// 5000 <nil>
}
