// Package ulule is a service before and after it has moved from github.com/ulule/limiter.
package ulule

import (
	"net/http"

	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	store "github.com/ulule/limiter/v3/drivers/store/redis"
)

func before(rdb *redis.Client, next http.Handler) (http.Handler, error) {
	rate, err := limiter.NewRateFromFormatted("100-M")
	if err != nil {
		return nil, err
	}
	s, err := store.NewStoreWithOptions(rdb, limiter.StoreOptions{Prefix: "api"}) // needs Redis
	if err != nil {
		return nil, err
	}
	middleware := stdlib.NewMiddleware(limiter.New(s, rate),
		stdlib.WithKeyGetter(user),
		stdlib.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, err error) { // panics by default
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		}))
	return middleware.Handler(next), nil
}
