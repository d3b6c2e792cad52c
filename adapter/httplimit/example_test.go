package httplimit_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// newLimiter returns a limiter whose clock stands still, so that the answers are the same each
// time. A service shares its limits with hybrid.New instead.
func newLimiter() *local.Limiter {
	noon := clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return limit.Must(local.New(local.Options{Clock: noon}))
}

// user is whatever your service knows the caller by.
func user(r *http.Request) string { name, _, _ := r.BasicAuth(); return name }

// ask sends a request of a user to a handler, and returns the answer.
func ask(h http.Handler, user string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.SetBasicAuth(user, "")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello", user(r)) })

func ExampleNew() {
	lim := newLimiter()
	defer lim.Close()
	perUser := limit.Must(limit.PerMinute("api", 2))
	protect, err := httplimit.New(limit.WithContext(lim), perUser, httplimit.By(user), httplimit.Options{})
	if err != nil {
		panic(err)
	}
	h := protect(hello)
	for _, user := range []string{"alice", "alice", "alice", "bob"} {
		resp := ask(h, user)
		fmt.Println(user, resp.StatusCode, resp.Header.Get("RateLimit"))
	}
	// Output:
	// alice 200 "api";r=1;t=60
	// alice 200 "api";r=0;t=60
	// alice 429 "api";r=0;t=60
	// bob 200 "api";r=1;t=60
}

// A request is charged to both limits, or to none.
func ExampleNewAll() {
	lim := newLimiter()
	defer lim.Close()
	everybody := func(*http.Request) (string, error) { return "all", nil }
	protect, err := httplimit.NewAll(limit.WithContext(lim), httplimit.Options{},
		httplimit.Limit{Rule: limit.Must(limit.PerMinute("per user", 2)), Key: httplimit.By(user)},
		httplimit.Limit{Rule: limit.Must(limit.PerMinute("in total", 3)), Key: everybody},
	)
	if err != nil {
		panic(err)
	}
	h := protect(hello)
	for _, user := range []string{"alice", "alice", "alice", "bob", "bob"} {
		resp := ask(h, user)
		fmt.Println(user, resp.StatusCode, resp.Header.Get("RateLimit"))
	}
	// Output:
	// alice 200 "per user";r=1;t=60
	// alice 200 "per user";r=0;t=60
	// alice 429 "per user";r=0;t=60
	// bob 200 "in total";r=0;t=60
	// bob 429 "in total";r=0;t=60
}

// The upstream asks for a pause: the next request is not sent.
func ExampleNewTransport() {
	sent := 0
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent++
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer upstream.Close()

	lim := newLimiter()
	defer lim.Close()
	perHost := limit.Must(limit.TokenBucket("upstream", 10, time.Second, 10))
	host := httplimit.By(func(r *http.Request) string { return r.URL.Host })
	transport, err := httplimit.NewTransport(limit.WithContext(lim), perHost, host, httplimit.TransportOptions{NoWait: true})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	for range 2 {
		resp, err := client.Get(upstream.URL)
		var refused *httplimit.RefusedError
		switch {
		case errors.As(err, &refused):
			fmt.Println("not sent, again in", refused.Result.RetryAfter)
		case err != nil:
			fmt.Println(err)
		default:
			resp.Body.Close()
			fmt.Println(resp.Status)
		}
	}
	fmt.Println(sent, "sent")
	// Output:
	// 429 Too Many Requests
	// not sent, again in 30s
	// 1 sent
}

// A request without a key is asked to log in.
func ExampleOptions_onError() {
	lim := newLimiter()
	defer lim.Close()
	protect, err := httplimit.New(limit.WithContext(lim), limit.Must(limit.PerMinute("api", 2)), httplimit.By(user), httplimit.Options{
		Logger: slog.New(slog.DiscardHandler), // one line in 10 s, otherwise
		OnError: func(w http.ResponseWriter, r *http.Request, next http.Handler, err error) {
			if errors.Is(err, httplimit.ErrNoKey) {
				w.Header().Set("WWW-Authenticate", "Basic")
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		},
	})
	if err != nil {
		panic(err)
	}
	h := protect(hello)
	fmt.Println(ask(h, "alice").StatusCode, ask(h, "").StatusCode)
	// Output: 200 401
}

// A connection that lasts is one request to the middleware. So what passes on it is taken of the
// limiter directly, message by message, also after the handler has returned.
func ExampleNew_longConnections() {
	lim := newLimiter()
	defer lim.Close()
	connections := limit.Must(limit.PerMinute("connections", 10))
	messages := limit.Must(limit.PerMinute("messages", 3))
	protect := limit.Must(httplimit.New(limit.WithContext(lim), connections, httplimit.By(user), httplimit.Options{}))
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := user(r) // keep it: the request belongs to the handler
		for i := range 5 {
			if res := lim.Take(key, messages, 1); !res.Allowed {
				fmt.Fprintln(w, "data: wait for", res.RetryAfter)
				return
			}
			fmt.Fprintln(w, "data: message", i)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	answer, _ := io.ReadAll(ask(h, "alice").Body)
	fmt.Print(string(answer))
	// Output:
	// data: message 0
	// data: message 1
	// data: message 2
	// data: wait for 1m0s
}
