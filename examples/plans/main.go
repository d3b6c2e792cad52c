// Command plans is a service with many tenants. Each has a plan, which says what the tenant may
// do in a day, and each of its users. One tenant changes its plan: go run ./examples/plans
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/examples/internal/demo"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

const day = 24 * time.Hour

// plan is what a tenant has paid for.
type plan struct{ tenant, user *limit.Rule }

// The rules of two plans have the same names and algorithms, so they share counters: what was
// used before a change of plan counts after it.
var (
	free = plan{limit.Must(limit.SlidingWindow("per tenant", 4, day)), limit.Must(limit.SlidingWindow("per user", 3, day))}
	pro  = plan{limit.Must(limit.SlidingWindow("per tenant", 1000, day)), limit.Must(limit.SlidingWindow("per user", 100, day))}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{})) // this process alone; a Redis client shares the limits
	defer lim.Close()
	var plans sync.Map // from tenants to plans: the part of your database
	plans.Store("globex", pro)
	url, stop, err := demo.Serve(service(lim, &plans))
	if err != nil {
		return err
	}
	defer stop()

	var client demo.Client
	defer client.Close()
	for _, who := range []string{
		"alice@acme", "alice@acme", "alice@acme", "alice@acme", "bob@acme", "bob@acme", "carol@globex",
		"", "alice@acme", "bob@acme",
	} {
		if who == "" {
			plans.Store("acme", pro)
			fmt.Fprintln(out, "acme has upgraded")
			continue
		}
		a, err := client.Get(ctx, url, who, "192.0.2.1")
		if err != nil {
			return err
		}
		fmt.Fprintln(out, who, a.Status, a.Header.Get("RateLimit"))
	}
	return nil
}

// service charges each request to the tenant and to the user, or to none of them.
func service(lim *hybrid.Limiter, plans *sync.Map) http.Handler {
	planOf := func(r *http.Request) plan {
		if p, ok := plans.Load(tenant(r)); ok {
			return p.(plan)
		}
		return free
	}
	protect := limit.Must(httplimit.NewAll(limit.WithContext(lim), httplimit.Options{},
		httplimit.Limit{Key: httplimit.By(tenant), RuleFor: func(r *http.Request) *limit.Rule { return planOf(r).tenant }},
		httplimit.Limit{Key: httplimit.By(user), RuleFor: func(r *http.Request) *limit.Rule { return planOf(r).user }},
	))
	return protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// user is whom the request is from, with the tenant: another tenant's alice is somebody else.
// A real service checks the password first.
func user(r *http.Request) string { name, _, _ := r.BasicAuth(); return name }

func tenant(r *http.Request) string { _, name, _ := strings.Cut(user(r), "@"); return name }
