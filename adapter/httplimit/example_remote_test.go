package httplimit_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// A limiter of package remote asks Redis for each request. What happens while Redis is away is
// your choice: refuse, which is the default, or let requests pass uncounted.
func ExampleNew_remote() {
	server, err := miniredis.Run() // in place of a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
	defer rdb.Close()
	lim := limit.Must(remote.New(rdb, remote.Options{}))

	perUser := limit.Must(limit.PerHour("api", 2))
	quiet := slog.New(slog.DiscardHandler) // one line in 10 s while Redis is away, otherwise
	refuses := limit.Must(httplimit.New(lim, perUser, httplimit.By(user), httplimit.Options{Logger: quiet}))(hello)
	failsOpen := limit.Must(httplimit.New(lim, perUser, httplimit.By(user), httplimit.Options{
		Logger: quiet,
		OnError: func(w http.ResponseWriter, r *http.Request, next http.Handler, err error) {
			switch {
			case errors.Is(err, httplimit.ErrUnavailable):
				next.ServeHTTP(w, r)
			case errors.Is(err, httplimit.ErrNoKey):
				http.Error(w, "who are you?", http.StatusBadRequest)
			default:
				http.Error(w, "cannot be decided", http.StatusInternalServerError)
			}
		},
	}))(hello)

	for range 3 {
		fmt.Println(ask(refuses, "alice").Status)
	}
	server.Close()
	fmt.Println("Redis is away:", ask(refuses, "alice").Status)
	fmt.Println("Redis is away:", ask(failsOpen, "alice").Status)
	// Output:
	// 200 OK
	// 200 OK
	// 429 Too Many Requests
	// Redis is away: 503 Service Unavailable
	// Redis is away: 200 OK
}
