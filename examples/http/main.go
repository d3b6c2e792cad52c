// Command http runs a service that is limited per user and per address, and a client that
// meets the limits. It needs nothing: without -redis it starts a Redis in this process.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A user has a plan, and no address more than its share, whatever users it poses as.
var (
	free       = limit.Must(limit.TokenBucket("per user", 3, 1, time.Hour))
	pro        = limit.Must(limit.TokenBucket("per user", 100, 1, time.Hour))
	perAddress = limit.Must(limit.TokenBucket("per address", 5, 1, time.Hour))
)

func main() {
	addr := flag.String("redis", "", "`host:port` of a Redis; if empty, one inside this process")
	flag.Parse()
	if err := run(*addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(addr string, out io.Writer) error {
	if addr == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer embedded.Close()
		addr = embedded.Addr()
	}
	rdb := redis.NewClient(hybrid.RedisOptions(addr))
	defer rdb.Close()
	lim, err := hybrid.New(rdb, hybrid.Options{})
	if err != nil {
		return err
	}
	defer lim.Close(context.Background())
	h, err := service(lim)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	err = visit("http://"+listener.Addr().String(), out)
	if closed := server.Shutdown(context.Background()); err == nil {
		err = closed
	}
	<-ended
	return err
}

// service answers those who are below both limits.
func service(lim *hybrid.Limiter) (http.Handler, error) {
	address, err := httplimit.ByAddress(httplimit.AddressOptions{ // the balancer in front of this service
		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Header:  httplimit.XForwardedFor,
	})
	if err != nil {
		return nil, err
	}
	protect, err := httplimit.NewAll(lim,
		httplimit.Options{RefundOn: func(status int) bool { return status >= 500 }}, // our own failures are free
		httplimit.Limit{RuleFor: plan, Key: httplimit.By(user)},
		httplimit.Limit{Rule: perAddress, Key: address},
	)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /hello", protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello", user(r))
	})))
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {}) // not limited
	return mux, nil
}

// user is whom the request is from. A real service checks the password first.
func user(r *http.Request) string { name, _, _ := r.BasicAuth(); return name }

// plan is what the user has paid for.
func plan(r *http.Request) *limit.Rule {
	if user(r) == "bob" {
		return pro
	}
	return free
}

// visit sends requests as a balancer would pass them on.
func visit(url string, out io.Writer) error {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, c := range []struct{ user, from string }{
		{"alice", "192.0.2.1"}, {"alice", "192.0.2.2"}, {"alice", "192.0.2.3"}, {"alice", "192.0.2.4"}, // her plan
		{"bob", "192.0.2.9"}, {"bob", "192.0.2.9"}, {"bob", "192.0.2.9"}, {"bob", "192.0.2.9"},
		{"bob", "192.0.2.9"}, {"bob", "192.0.2.9"}, {"bob", "192.0.2.8"}, // his address
	} {
		r, err := http.NewRequest(http.MethodGet, url+"/hello", nil)
		if err != nil {
			return err
		}
		r.SetBasicAuth(c.user, "")
		r.Header.Set("X-Forwarded-For", "10.9.8.7, "+c.from) // what the client has written stands left
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		fmt.Fprintln(out, c.user, "from", c.from, resp.StatusCode, resp.Header.Get("RateLimit"))
	}
	return nil
}
