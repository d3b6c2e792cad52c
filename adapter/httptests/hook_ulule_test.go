package httptests

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// ululeStore is a store of ulule/limiter. A call that is refused is not counted.
type ululeStore struct{ lim *hybrid.Limiter }

var _ limiter.Store = ululeStore{}

func (s ululeStore) Get(ctx context.Context, key string, r limiter.Rate) (limiter.Context, error) {
	return s.Increment(ctx, key, 1, r)
}

func (s ululeStore) Increment(_ context.Context, key string, n int64, r limiter.Rate) (limiter.Context, error) {
	return asked(r, func(rule *limit.Rule) (limit.Result, error) { return s.lim.Take(key, rule, n), nil })
}

func (s ululeStore) Peek(_ context.Context, key string, r limiter.Rate) (limiter.Context, error) {
	return asked(r, func(rule *limit.Rule) (limit.Result, error) { return s.lim.Peek(key, rule), nil })
}

func (s ululeStore) Reset(ctx context.Context, key string, r limiter.Rate) (limiter.Context, error) {
	return asked(r, func(rule *limit.Rule) (limit.Result, error) {
		err := s.lim.Reset(ctx, key, rule)
		return s.lim.Peek(key, rule), err
	})
}

// asked returns the answer of a limiter as one of ulule/limiter.
func asked(r limiter.Rate, ask func(*limit.Rule) (limit.Result, error)) (limiter.Context, error) {
	rule, err := limit.FixedWindow("ulule", r.Limit, r.Period)
	if err != nil {
		return limiter.Context{}, err
	}
	res, err := ask(rule)
	return limiter.Context{Limit: res.Limit, Remaining: res.Remaining, Reset: time.Now().Add(res.ResetAfter).Unix(), Reached: !res.Allowed}, err
}

func Example_ululeStore() {
	lim := shared()
	defer lim.Close()
	perHour := limiter.Rate{Limit: 2, Period: time.Hour}
	l := limiter.New(ululeStore{lim}, perHour)
	server := stdlib.NewMiddleware(l).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	try := func() {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"), "of", w.Header().Get("X-RateLimit-Limit"))
	}
	for range 3 {
		try()
	}
	c, err := l.Reset(context.Background(), "192.0.2.1")
	fmt.Println(c.Remaining, c.Reached, err)
	try()
	_, err = l.Store.Get(context.Background(), "k", limiter.Rate{})
	fmt.Println(err)
	// Output:
	// 200 1 of 2
	// 200 0 of 2
	// 429 0 of 2
	// 2 false <nil>
	// 200 1 of 2
	// limit: fixed-window rule "ulule": window 0s: must be 1ms to 876000h0m0s
}
