// Command http runs a service that is limited per user and per address, and a client that
// meets the limits: go run ./examples/http
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"os"
	"os/signal"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/examples/internal/demo"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// No address has more than its share, whatever users it poses as.
var (
	perUser    = limit.Must(limit.PerHour("per user", 3))
	perAddress = limit.Must(limit.PerHour("per address", 5))
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	server, err := demo.StartRedis(out)
	if err != nil {
		return err
	}
	defer server.Close()
	rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
	defer rdb.Close()
	lim := limit.Must(hybrid.New(rdb, hybrid.Options{}))
	defer lim.Close()
	url, stop, err := demo.Serve(service(lim))
	if err != nil {
		return err
	}
	defer stop()
	return visit(ctx, url, out)
}

// service answers those who are below both limits.
func service(lim *hybrid.Limiter) http.Handler {
	address := limit.Must(httplimit.ByAddress(httplimit.AddressOptions{ // the balancer in front of this service
		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Header:  httplimit.XForwardedFor,
	}))
	protect := limit.Must(httplimit.NewAll(limit.WithContext(lim),
		httplimit.Options{RefundOn: func(status int) bool { return status >= 500 }}, // our own failures are free
		httplimit.Limit{Rule: perUser, Key: httplimit.By(user)},
		httplimit.Limit{Rule: perAddress, Key: address},
	))
	mux := http.NewServeMux()
	mux.Handle("GET /hello", protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello", user(r))
	})))
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {}) // not limited
	return mux
}

// user is whom the request is from. A real service checks the password first.
func user(r *http.Request) string { name, _, _ := r.BasicAuth(); return name }

// visit sends requests as a balancer passes them on.
func visit(ctx context.Context, url string, out io.Writer) error {
	var client demo.Client
	defer client.Close()
	for _, c := range []struct{ user, from string }{
		{"alice", "192.0.2.1"}, {"alice", "192.0.2.2"}, {"alice", "192.0.2.1"}, {"alice", "192.0.2.3"}, // her limit
		{"bob", "192.0.2.9"}, {"bob", "192.0.2.9"}, {"carol", "192.0.2.9"}, {"carol", "192.0.2.9"},
		{"carol", "192.0.2.9"}, {"dave", "192.0.2.9"}, {"dave", "192.0.2.8"}, // the limit of 192.0.2.9
	} {
		a, err := client.Get(ctx, url+"/hello", c.user, "10.9.8.7, "+c.from) // what a client has written stands left
		if err != nil {
			return err
		}
		fmt.Fprintln(out, c.user, "from", c.from, a.Status, a.Header.Get("RateLimit"))
	}
	return nil
}
