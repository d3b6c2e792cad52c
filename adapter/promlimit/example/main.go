// Command example limits each user of an HTTP server to 100 requests a minute, and shows
// Prometheus, and you, what the limiter does.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/adapter/promlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var perUser = limit.Must(limit.PerMinute("api", 100)) // made once

func main() {
	logging.Disable() // go-redis would write a line for each connection that fails
	rdb := redis.NewClient(hybrid.RedisOptions("localhost:6379"))
	// It does not wait for Redis, and works without it. ExpectedNodes is how many processes there always are.
	lim := limit.Must(hybrid.New(rdb, hybrid.Options{Logger: slog.Default(), ExpectedNodes: 1}))
	protect := limit.Must(httplimit.New(limit.WithContext(lim), perUser, httplimit.By(user), httplimit.Options{}))
	http.Handle("/", protect(http.HandlerFunc(hello)))
	prometheus.MustRegister(limit.Must(promlimit.New("api", lim)))
	http.Handle("/metrics", promhttp.Handler())
	page := limit.Must(adminlimit.New(lim, adminlimit.Options{}))
	go func() { log.Print(http.ListenAndServe("localhost:6060", page)) }()
	server := &http.Server{Addr: cmp.Or(os.Getenv("ADDR"), ":8080")}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go func() { log.Print(server.ListenAndServe()); stop() }()
	<-ctx.Done()
	server.Shutdown(context.Background()) // answers what it has received
	lim.Close()                           // reports what is pending, within 5 s
}

// user is whatever your service knows the caller by.
func user(r *http.Request) string { name, _, _ := r.BasicAuth(); return name }

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello", user(r)) }
