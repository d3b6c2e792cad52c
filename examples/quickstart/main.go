// Command quickstart limits each user of an HTTP server to 100 requests a minute.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var perUser = limit.Must(limit.SlidingWindow("api", 100, time.Minute)) // built once

func main() {
	rdb := redis.NewClient(hybrid.RedisOptions("localhost:6379"))
	lim, err := hybrid.New(rdb, hybrid.Options{}) // does not wait for Redis, works without it
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(http.ListenAndServe(":8080", handler(lim))) }()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
	lim.Close(context.Background()) // reports what is pending, within 5 s
}

func handler(lim *hybrid.Limiter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth() // whatever your service knows the caller by
		res := lim.Take("user:"+user, perUser, 1)
		if seconds, ok := res.RetryAfterSeconds(); ok {
			w.Header().Set("Retry-After", fmt.Sprint(seconds))
		}
		if !res.Allowed {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		fmt.Fprintln(w, res.Remaining, "requests left")
	}
}
