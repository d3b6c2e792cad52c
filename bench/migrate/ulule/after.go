package ulule

import (
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var perUser = limit.Must(limit.PerMinute("api", 100)) // built once

func after(rdb *redis.Client, next http.Handler) (http.Handler, *hybrid.Limiter, error) {
	lim, err := hybrid.New(rdb, hybrid.Options{}) // works without Redis; Close it at the end
	if err != nil {
		return nil, nil, err
	}
	protect, err := httplimit.New(limit.WithContext(lim), perUser, httplimit.By(user), httplimit.Options{
		Headers: httplimit.XRateLimitHeaders, // or leave this out, for the fields of the IETF draft
	})
	if err != nil {
		return nil, nil, err
	}
	return protect(next), lim, nil
}
