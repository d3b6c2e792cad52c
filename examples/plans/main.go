// Command plans gives customers different limits, and lets one of them change
// the plan without losing what was used.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The rules have one name and one algorithm, so they share a counter for each
// customer: only the limit differs.
var plans = map[string]*limit.Rule{
	"free": limit.Must(limit.FixedWindow("calls", 10, 24*time.Hour)),
	"pro":  limit.Must(limit.FixedWindow("calls", 1000, 24*time.Hour)),
}

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) error {
	lim, err := hybrid.New(nil, hybrid.Options{}) // this process alone; a Redis client shares the limits
	if err != nil {
		return err
	}
	defer lim.Close(context.Background())

	call := func(customer, plan string, n int64) {
		rule := plans[plan]
		verdict := "allowed"
		if !lim.AllowN(customer, rule, n) {
			verdict = "refused"
		}
		fmt.Fprintf(out, "%s (%s) calls %d times: %s, %d left\n", customer, plan, n, verdict, lim.Peek(customer, rule).Remaining)
	}
	call("alice", "free", 8)
	call("alice", "free", 5)
	call("alice", "pro", 5) // upgraded: the 8 calls still count
	call("bob", "free", 1)
	return nil
}
