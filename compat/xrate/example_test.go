package xrate_test

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/compat/xrate"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

func ExampleNew() {
	// A service gives hybrid.New a client of Redis, and needs no clock.
	now := clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	lim := limit.Must(hybrid.New(nil, hybrid.Options{Clock: now}))
	defer lim.Close()
	limiter := limit.Must(xrate.New(lim, "api.example", "upstream", 10, 2, xrate.Options{Clock: now})) // was rate.NewLimiter(10, 2)

	fmt.Println(limiter.Allow(), limiter.Allow(), limiter.Allow())
	fmt.Println(limiter.Reserve().Delay())
	limiter.SetLimit(rate.Every(time.Second))
	fmt.Println(limiter.Limit(), limiter.Burst(), limiter.Tokens())
	// Output:
	// true true false
	// 100ms
	// 1 2 -1
}
