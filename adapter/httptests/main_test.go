package httptests

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial), // fasthttp's clock, and its sweeper, which ends some seconds after the server
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// middleware is what every router wraps.
type middleware = func(http.Handler) http.Handler

var rule = limit.Must(limit.TokenBucket("per address", 1, time.Hour, 2))

// perAddress returns a middleware that admits two requests of an address, and hands back the
// units of those that fail.
func perAddress() (middleware, *local.Limiter) {
	lim, err := local.New(local.Options{Clock: clock.NewManual(time.Unix(1_700_000_000, 0))}) // one that stands still
	if err != nil {
		panic(err)
	}
	address, err := httplimit.ByAddress(httplimit.AddressOptions{}) // no proxy in front
	if err != nil {
		panic(err)
	}
	m, err := httplimit.New(limit.WithContext(lim), rule, address, httplimit.Options{
		RefundOn: func(status int) bool { return status >= 500 },
		Refused: func(w http.ResponseWriter, _ *http.Request, d httplimit.Decision) {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprintf(w, "refused by %q, again in %s s", d.Rule.Name(), w.Header().Get("Retry-After"))
		},
	})
	if err != nil {
		panic(err)
	}
	return m, lim
}

// try sends requests to a server with a router: those that fail are free, two others pass, the
// next is refused, and an unprotected route is open.
func try(url string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/fail", "/ok", "/ok", "/ok", "/open"} {
		resp, err := client.Get(url + path)
		if err != nil {
			panic(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			panic(err)
		}
		resp.Body.Close()
		fmt.Println(path, resp.StatusCode, strings.TrimSpace(string(body)), resp.Header.Get("RateLimit"))
	}
}
