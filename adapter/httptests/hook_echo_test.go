package httptests

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"

	"github.com/labstack/echo/v5"
	limiting "github.com/labstack/echo/v5/middleware"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// echoStore is a store of echo's own rate limiter.
type echoStore struct{ lim *hybrid.Limiter }

var (
	_ limiting.RateLimiterStore        = echoStore{}
	_ limiting.RateLimiterStoreContext = echoStore{}
)

func (s echoStore) Allow(id string) (bool, error) { return s.lim.Allow(id, perCaller), nil }

// AllowContext is called in the place of Allow, and can say when to come back.
func (s echoStore) AllowContext(c *echo.Context, id string) (bool, error) {
	res := s.lim.Take(id, perCaller, 1)
	if n, ok := res.RetryAfterSeconds(); ok {
		c.Response().Header().Set("Retry-After", strconv.Itoa(n))
	}
	return res.Allowed, nil
}

func Example_echoStore() {
	lim := shared()
	defer lim.Close()
	e := echo.New()
	e.Use(limiting.RateLimiter(echoStore{lim}))
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	for _, addr := range []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.2:1"} {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.RemoteAddr = addr
		e.ServeHTTP(w, r)
		fmt.Println(addr, w.Code, cmp.Or(w.Header().Get("Retry-After"), "-"))
	}
	ok, err := echoStore{lim}.Allow("192.0.2.2")
	fmt.Println(ok, err)
	// Output:
	// 192.0.2.1:1 200 -
	// 192.0.2.1:2 200 -
	// 192.0.2.1:3 429 3600
	// 192.0.2.2:1 200 -
	// true <nil>
}
