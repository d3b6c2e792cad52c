package httptests

import (
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"
)

// chi takes the middleware as it is, for all routes or for some.
func Example_chi() {
	protect, lim := perAddress()
	defer lim.Close()
	router := chi.NewRouter()
	router.Group(func(r chi.Router) {
		r.Use(protect)
		r.Get("/ok", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
		r.Get("/fail", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "sorry", http.StatusInternalServerError) })
	})
	router.Get("/open", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	server := httptest.NewServer(router)
	defer server.Close()
	try(server.URL)
	// Output:
	// /fail 500 sorry "per address";r=1;t=3600
	// /ok 200 hello "per address";r=1;t=3600
	// /ok 200 hello "per address";r=0;t=3600
	// /ok 429 refused by "per address", again in 3600 s "per address";r=0;t=3600
	// /open 200 hello
}
