// Command quickstart limits each user of an HTTP server to 100 requests a minute.
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

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var perUser = limit.Must(limit.PerMinute("api", 100)) // made once

func main() {
	logging.Disable() // go-redis would write a line for each connection that fails
	rdb := redis.NewClient(hybrid.RedisOptions("localhost:6379"))
	lim := limit.Must(hybrid.New(rdb, hybrid.Options{Logger: slog.Default()})) // does not wait for Redis, works without it
	protect := limit.Must(httplimit.New(limit.WithContext(lim), perUser, httplimit.By(user), httplimit.Options{}))
	http.Handle("/", protect(http.HandlerFunc(hello)))
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
