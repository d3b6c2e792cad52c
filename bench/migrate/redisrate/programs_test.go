package redisrate

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// user is whatever the service knows a caller by.
func user(r *http.Request) string { return r.Header.Get("X-User") }

// before is a service that asks redis_rate.
func before(rdb *redis.Client, next http.Handler) http.Handler {
	limiter := redis_rate.NewLimiter(rdb)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, err := limiter.Allow(r.Context(), user(r), redis_rate.PerMinute(120))
		if err != nil { // Redis did not answer: yours to decide
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		if res.Allowed == 0 {
			seconds := int(math.Ceil(res.RetryAfter.Seconds()))
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var perUser = limit.Must(limit.TokenBucket("api", 120, time.Minute, 120)) // built once

// after is the service that asks hybrid itself.
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
