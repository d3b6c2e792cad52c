// Command replicas runs three replicas of a service behind a proxy that asks them in turn,
// and one Redis, which crashes and comes back empty: go run ./examples/replicas
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/examples/internal/demo"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

const alice, bob = "192.0.2.1", "192.0.2.2"

var perClient = limit.Must(limit.PerHour("per client", 30))

func main() {
	logging.Disable() // go-redis writes a line for each connection that is refused
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // it takes some seconds
	defer cancel()
	rdb, err := demo.StartRedis(out)
	if err != nil {
		return err
	}
	defer rdb.Close()
	var nodes []*hybrid.Limiter
	var urls []*url.URL
	for i := range 3 {
		client := redis.NewClient(hybrid.RedisOptions(rdb.Addr()))
		defer client.Close()
		lim := limit.Must(hybrid.New(client, hybrid.Options{}))
		defer lim.Close()
		at, stop, err := demo.Serve(replica(i+1, lim))
		if err != nil {
			return err
		}
		defer stop()
		nodes, urls = append(nodes, lim), append(urls, limit.Must(url.Parse(at)))
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	at, stop, err := demo.Serve(proxy(urls, transport))
	if err != nil {
		return err
	}
	defer stop()

	f := &demo.Fleet{Ctx: ctx, Out: out, URL: at, Nodes: nodes}
	defer f.Close()
	f.Await(hybrid.Synced)
	fmt.Fprintln(out, "12 requests, and 90 more when the replicas have heard of them")
	f.Send(12, alice)
	f.Share(perClient, alice)
	f.Send(90, alice)

	f.Await(hybrid.Synced) // also on a machine that is busy
	rdb.Kill()
	f.Await(hybrid.Degraded)
	fmt.Fprintln(out, "Redis has crashed: 90 requests, and each replica gives its share")
	f.Send(90, bob)

	f.Note(rdb.Restart())
	f.Await(hybrid.Synced)
	f.Share(perClient, alice, bob)
	fmt.Fprintln(out, "Redis is back, empty: the replicas have told it what they know, 3 requests each")
	f.Send(3, alice)
	f.Send(3, bob)
	return f.Err
}

// replica is a service that answers clients who are below the limit. The proxy is the only one
// that it believes who the client is.
func replica(number int, lim *hybrid.Limiter) http.Handler {
	address := limit.Must(httplimit.ByAddress(httplimit.AddressOptions{
		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Header: httplimit.XForwardedFor,
	}))
	protect := limit.Must(httplimit.New(limit.WithContext(lim), perClient, address, httplimit.Options{}))
	return protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, number) }))
}

// proxy passes requests on to one replica after the other.
func proxy(to []*url.URL, transport http.RoundTripper) http.Handler {
	var n atomic.Uint64
	return &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to[n.Add(1)%uint64(len(to))])
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"] // from the balancer in front, which is trusted
		r.SetXForwarded()                                                // appends the peer, which is that balancer
	}}
}
