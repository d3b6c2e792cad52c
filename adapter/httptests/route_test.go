package httptests

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// What ByRoute takes for the route is what the router has said before the middleware: of chi
// the whole pattern only behind With and Group, of fiber nothing.
func TestByRoute(t *testing.T) {
	lim, err := local.New(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	keys := make(chan string, 1)
	byRoute, err := httplimit.New(limit.WithContext(lim), limit.Must(limit.TokenBucket("per route", 1, time.Hour, 100)), httplimit.ByRoute, httplimit.Options{
		OnDecision: func(_ *http.Request, d httplimit.Decision) {
			if d.Err != nil {
				keys <- ""
				return
			}
			keys <- d.Checks[0].Key
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	served := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") }
	try := func(h http.Handler, path, want string) {
		t.Helper()
		server := httptest.NewServer(h)
		defer server.Close()
		resp, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if key := <-keys; key != want || (resp.StatusCode == http.StatusOK) != (want != "") {
			t.Errorf("%s: key %q, want %q, and status %d", path, key, want, resp.StatusCode)
		}
	}

	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", byRoute(http.HandlerFunc(served)))
	try(mux, "/items/1", "GET /items/{id}")

	c := chi.NewRouter()
	c.With(byRoute).Get("/items/{id}", served)
	c.Group(func(r chi.Router) { r.Use(byRoute); r.Get("/group/{id}", served) })
	c.Route("/users", func(r chi.Router) { r.Use(byRoute); r.Get("/{id}", served) })
	try(c, "/items/1", "/items/{id}")
	try(c, "/group/1", "/group/{id}")
	try(c, "/users/1", "/users/*")

	e := echo.New()
	e.GET("/items/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "served") }, echo.WrapMiddleware(byRoute))
	try(e, "/items/1", "/items/:id")

	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.GET("/items/:id", ginMiddleware(byRoute), func(c *gin.Context) { c.String(http.StatusOK, "served") })
	try(g, "/items/1", "/items/:id")

	f := fiber.New()
	f.Get("/items/:id", adaptor.HTTPMiddleware(byRoute), func(c fiber.Ctx) error { return errors.New("reached without a key") })
	resp, err := f.Test(httptest.NewRequest(http.MethodGet, "/items/1", nil), fiber.TestConfig{}) // for as long as it takes
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if key := <-keys; key != "" || resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("fiber: key %q, status %d", key, resp.StatusCode)
	}
}
