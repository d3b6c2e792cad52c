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
	replies := limit.Must(limit.Funnel("reply", 2, 1, 30*time.Second))
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
