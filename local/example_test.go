package local_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

func Example() {
	replies := limit.Must(limit.PerMinute("replies", 5))

	lim, err := local.New(local.Options{})
	if err != nil {
		panic(err)
	}
	defer lim.Close()

	for i := range 7 {
		fmt.Println(i+1, lim.Allow("user 42", replies))
	}
	// Output:
	// 1 true
	// 2 true
	// 3 true
	// 4 true
	// 5 true
	// 6 false
	// 7 false
}

func ExampleLimiter_Take() {
	// A clock that stands still makes the answer the same each time.
	noon := clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	lim, err := local.New(local.Options{Clock: noon})
	if err != nil {
		panic(err)
	}
	defer lim.Close()

	// Room for 16 replies, one of which is forgotten every two seconds.
	rule := limit.Must(limit.TokenBucket("reply", 30, time.Minute, 16))
	res := lim.Take("user 42", rule, 15)
	fmt.Println(res.Allowed, res.Remaining, res.ResetAfter)
	res = lim.Take("user 42", rule, 2)
	fmt.Println(res.Allowed, res.Remaining, res.RetryAfter)
	// Output:
	// true 1 30s
	// false 1 2s
}

func ExampleLimiter_Peek() {
	lim, err := local.New(local.Options{})
	if err != nil {
		panic(err)
	}
	defer lim.Close()

	rule := limit.Must(limit.FixedWindow("downloads", 3, 24*time.Hour))
	lim.Allow("user 42", rule)
	fmt.Println(lim.Peek("user 42", rule).Remaining, "left today")
	// Output: 2 left today
}

func ExampleLimiter_TakeAll() {
	lim, err := local.New(local.Options{})
	if err != nil {
		panic(err)
	}
	defer lim.Close()

	burst := limit.Must(limit.FixedWindow("burst", 2, time.Hour))
	daily := limit.Must(limit.FixedWindow("daily", 100, 24*time.Hour))
	for range 3 {
		v := lim.TakeAll(limit.Check{Key: "user 42", Rule: burst, N: 1}, limit.Check{Key: "user 42", Rule: daily, N: 1})
		fmt.Println(v.Allowed, v.Rule.Name(), v.Remaining)
	}
	fmt.Println(lim.Peek("user 42", daily).Remaining, "left today")
	// Output:
	// true burst 1
	// true burst 0
	// false burst 0
	// 98 left today
}

func ExampleLimiter_Reserve() {
	noon := clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	lim, err := local.New(local.Options{Clock: noon})
	if err != nil {
		panic(err)
	}
	defer lim.Close()

	rule := limit.Must(limit.TokenBucket("print", 1, time.Minute, 1))
	lim.Allow("printer", rule)
	first, second := lim.Reserve("printer", rule), lim.Reserve("printer", rule)
	fmt.Println(first.Delay(), second.Delay())
	second.Cancel(context.Background())
	fmt.Println(lim.Reserve("printer", rule).Delay())
	// Output:
	// 1m0s 2m0s
	// 2m0s
}

func ExampleLimiter_Wait() {
	lim, err := local.New(local.Options{})
	if err != nil {
		panic(err)
	}
	defer lim.Close()

	rule := limit.Must(limit.TokenBucket("crawl", 100, time.Second, 1)) // one every 10 ms
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 3 {
		fmt.Println(lim.Wait(ctx, "example.com", rule))
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
}

// What an upstream service says in a header replaces what was counted here.
func ExampleLimiter_Set() {
	lim, err := local.New(local.Options{})
	if err != nil {
		panic(err)
	}
	defer lim.Close()

	upstream := limit.Must(limit.FixedWindow("upstream", 100, 24*time.Hour))
	if err := lim.Set("our account", upstream, 97); err != nil {
		panic(err)
	}
	fmt.Println(lim.Peek("our account", upstream).Remaining)
	if err := lim.Reset("our account", upstream); err != nil {
		panic(err)
	}
	fmt.Println(lim.Peek("our account", upstream).Remaining)
	// Output:
	// 3
	// 100
}

// What an answer costs is known only afterwards: what is above the limit is a debt.
func ExampleLimiter_Charge() {
	lim, err := local.New(local.Options{MaxKeys: 1000})
	if err != nil {
		panic(err)
	}
	defer lim.Close()

	rows := limit.Must(limit.FixedWindow("rows", 100, 24*time.Hour))
	lim.Allow("report", rows)
	fmt.Println(lim.Charge("report", rows, 150), lim.Allow("report", rows))
	// Output: 150 false
}
