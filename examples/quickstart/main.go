// Command quickstart limits each user of an HTTP server to 100 requests a minute.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
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
	err = http.ListenAndServe(":8080", handler(lim))
	lim.Close(context.Background()) // reports what is pending
	log.Fatal(err)
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
