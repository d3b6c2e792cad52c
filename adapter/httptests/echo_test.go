package httptests

import (
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"
)

// echo has an adapter.
func Example_echo() {
	protect, lim := perAddress()
	defer lim.Close()
	e := echo.New()
	limited := echo.WrapMiddleware(protect)
	e.GET("/ok", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") }, limited)
	e.GET("/fail", func(c *echo.Context) error { return c.String(http.StatusInternalServerError, "sorry") }, limited)
	e.GET("/open", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	server := httptest.NewServer(e)
	defer server.Close()
	try(server.URL)
	// Output:
	// /fail 500 sorry "per address";r=1;t=3600
	// /ok 200 hello "per address";r=1;t=3600
	// /ok 200 hello "per address";r=0;t=3600
	// /ok 429 refused by "per address", again in 3600 s "per address";r=0;t=3600
	// /open 200 hello
}
