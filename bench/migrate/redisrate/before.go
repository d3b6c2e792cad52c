// Package redisrate is a service before and after it has moved from redis_rate.
package redisrate

import (
	"math"
	"net/http"
	"strconv"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

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
