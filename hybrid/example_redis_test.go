package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Log-ins must be exact, so Redis decides them. That takes a round trip, for which the request has time.
func ExampleLimiter_TakeExact() {
	server, err := miniredis.Run() // in place of a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
	defer rdb.Close()
	lim := limit.Must(hybrid.New(rdb, hybrid.Options{}))
	defer lim.Close()

	perAccount := limit.Must(limit.FixedWindow("log-ins of an account", 2, 24*time.Hour))
	perAddress := limit.Must(limit.FixedWindow("log-ins of an address", 20, 24*time.Hour))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for range 3 {
		res, err := lim.TakeExact(ctx, limit.Check{Key: "alice", Rule: perAccount}, limit.Check{Key: "192.0.2.1", Rule: perAddress})
		if away := (*hybrid.UnavailableError)(nil); errors.As(err, &away) {
			fmt.Println("try again later:", away.Reason)
			return
		} else if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(res.Allowed, "by", res.Rule.Name())
	}
	// Output:
	// true by log-ins of an account
	// true by log-ins of an account
	// false by log-ins of an account
}

// What an answer costs is known only afterwards. An estimate is taken before, and corrected.
func ExampleLimiter_Charge() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	tokens := limit.Must(limit.Quota("tokens", 10_000, limit.Calendar{Unit: limit.Month}))
	const estimate, used = 500, 12_500
	if lim.AllowN("alice", tokens, estimate) {
		lim.Charge("alice", tokens, used-estimate)
	}
	fmt.Println(lim.Peek("alice", tokens).Remaining, lim.Allow("alice", tokens))
	// Output: 0 false
}

// Support asks why a customer is refused.
func ExampleLimiter_Explain() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()

	mails := limit.Must(limit.FixedWindow("mails", 2, 24*time.Hour))
	lim.AllowN("alice", mails, 2)
	text, err := lim.Explain(context.Background(), "alice", mails)
	fmt.Println(strings.Contains(text, "mails"), err)
	// Output: true <nil>
}

// A Cluster keeps each group of keys on one of its masters. Passwords and TLS are added to what the
// functions return.
func ExampleRedisClusterOptions() {
	o := hybrid.RedisClusterOptions("redis-1:6379", "redis-2:6379")
	o.Password = "secret"
	rdb := redis.NewClusterClient(o)
	defer rdb.Close()

	sentinel := redis.NewFailoverClient(hybrid.RedisFailoverOptions("mymaster", "sentinel-1:26379", "sentinel-2:26379"))
	defer sentinel.Close()
}

// An operator is told what happens besides outages.
func ExampleEvent() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{
		Logger: slog.New(slog.DiscardHandler),
		OnEvent: func(e hybrid.Event) {
			if e.Kind == hybrid.EventInvalid {
				fmt.Println(e.Kind, "of key", e.Key)
			}
		},
	}))
	lim.Allow("alice", nil)
	_ = lim.Close() // events come from a goroutine, before Close returns
	// Output: invalid-check of key alice
}
