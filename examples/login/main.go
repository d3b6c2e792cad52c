// Command login limits log-ins exactly: two processes try no more passwords of an account than one
// would, and an attack on it costs no call of Redis: go run ./examples/login
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
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/examples/internal/demo"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var (
	perAccount = limit.Must(limit.PerMinute("log-ins", 5)).Exact() // Redis decides
	perAddress = limit.Must(limit.PerMinute("log-ins of an address", 100))
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Second) // it takes a second or two, and within a minute
	defer cancel()
	server, err := demo.StartRedis(out)
	if err != nil {
		return err
	}
	defer server.Close()
	f, urls := &demo.Fleet{Ctx: ctx, Out: out}, []string(nil)
	for range 2 { // processes
		rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
		defer rdb.Close()
		lim := limit.Must(hybrid.New(rdb, hybrid.Options{}))
		defer lim.Close()
		url, stop, err := demo.Serve(service(lim))
		if err != nil {
			return err
		}
		defer stop()
		f.Nodes, urls = append(f.Nodes, lim), append(urls, url)
	}
	if f.Await(hybrid.Synced); f.Err != nil {
		return f.Err
	}
	v := &visitor{ctx: ctx, urls: urls}
	defer v.Close()
	v.log(out, "alice forgets her password", 8, func(int) (user, from string) { return "alice", "192.0.2.1" })
	before, names := asked(f.Nodes), [...]string{"alice", " Alice"}
	v.log(out, "a botnet tries alice", 1000, func(i int) (user, from string) { return names[i%2], fmt.Sprint("198.51.100.", i%250) })
	fmt.Fprintln(out, "calls of Redis for these:", asked(f.Nodes)-before)
	v.log(out, "a bot tries all accounts", 300, func(i int) (user, from string) { return fmt.Sprint("user", i/2), "203.0.113.7" })
	v.log(out, "bob logs in", 1, func(int) (user, from string) { return "bob", "192.0.2.2" })
	return v.err
}

// asked returns how often Redis has decided.
func asked(nodes []*hybrid.Limiter) (n int64) {
	for _, lim := range nodes {
		n += lim.Stats().ExactAsked
	}
	return n
}

// service checks passwords. While Redis does not answer, as before the first connection, it checks none (503).
func service(lim *hybrid.Limiter) http.Handler {
	address := limit.Must(httplimit.ByAddress(httplimit.AddressOptions{ // the balancer in front of this service
		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Header: httplimit.XForwardedFor,
	}))
	protectAddress := limit.Must(httplimit.New(limit.WithContext(lim), perAddress, address, httplimit.Options{}))
	protectAccount := limit.Must(httplimit.New(limit.WithContext(lim), perAccount, httplimit.By(account), httplimit.Options{}))
	wrong := func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "wrong password,", account(r)) }
	return protectAddress(protectAccount(http.HandlerFunc(wrong)))
}

// account is whose password is tried, by the name as the database compares it: or " Alice" is tried 5 times more.
func account(r *http.Request) string {
	name, _, _ := r.BasicAuth()
	return strings.ToLower(strings.TrimSpace(name))
}

// visitor tries to log in, at one process and the other in turn.
type visitor struct {
	demo.Client
	ctx  context.Context
	urls []string
	err  error
}

// log tries n log-ins and prints how many passwords were checked. After an error it does nothing.
func (v *visitor) log(out io.Writer, what string, n int, of func(i int) (user, from string)) {
	checked := 0
	for i := range n {
		user, from := of(i)
		a, err := v.Get(v.ctx, v.urls[i%len(v.urls)], user, from)
		if v.err = err; err != nil {
			return
		}
		if a.Status == http.StatusOK {
			checked++
		}
	}
	fmt.Fprintf(out, "%s: %d of %d passwords are checked\n", what, checked, n)
}
