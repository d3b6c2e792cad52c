// Command limits asks for several limits at once: a request must fit the limit
// of its user, that of its tenant, and one for its size. It is charged to all
// of them or to none: go run ./examples/limits
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Limits of one caller have names of their own: a name is a namespace.
var (
	perUser   = limit.Must(limit.FixedWindow("requests per user", 3, time.Hour))
	perTenant = limit.Must(limit.FixedWindow("requests per tenant", 5, time.Hour))
	uploads   = limit.Must(limit.FixedWindow("megabytes per tenant", 100, time.Hour))
)

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
	defer lim.Close()

	upload := func(tenant, user string, megabytes int64) {
		v := lim.TakeAll(
			limit.Check{Key: limit.JoinKey(tenant, user), Rule: perUser}, // without N: 1 unit
			limit.Check{Key: tenant, Rule: perTenant},
			limit.Check{Key: tenant, Rule: uploads, N: megabytes},
		)
		if v.Allowed {
			fmt.Fprintf(out, "%s of %s uploads %d MB: allowed\n", user, tenant, megabytes)
		} else {
			fmt.Fprintf(out, "%s of %s uploads %d MB: refused by %q\n", user, tenant, megabytes, v.Rule.Name())
		}
	}
	upload("acme", "alice", 60)
	upload("acme", "alice", 60) // too large by now: costs no request either
	upload("acme", "alice", 10)
	upload("acme", "alice", 10)
	upload("acme", "alice", 10)
	upload("acme", "bob", 10)
	fmt.Fprintf(out, "left of acme: %d requests, %d MB\n",
		lim.Peek("acme", perTenant).Remaining, lim.Peek("acme", uploads).Remaining)
	return nil
}
