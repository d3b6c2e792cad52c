package redisrate

import (
	"net/http"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var perUser = limit.Must(limit.TokenBucket("api", limit.Tokens{Burst: 120, Refill: 120, Per: time.Minute})) // built once

func after(rdb *redis.Client, next http.Handler) (http.Handler, *hybrid.Limiter, error) {
	lim, err := hybrid.New(rdb, hybrid.Options{}) // one for the process; Close it at the end
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res := lim.Take(user(r), perUser, 1) // no ctx, no error: it is decided in memory
		if !res.Allowed {
			if seconds, ok := res.RetryAfterSeconds(); ok {
				w.Header().Set("Retry-After", strconv.Itoa(seconds))
			}
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	}), lim, err
}
