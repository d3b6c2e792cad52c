package httplimit

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hybridlimit/hybridlimit/hybridtest"
)

// Two services that are asked at the same moment admit as many as an exact limit, and what a node knows to
// be used up costs no call of Redis. In an outage the fallback decides.
func TestExactFleet(t *testing.T) {
	f := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	account, address := perMinute("login", 10).Exact(), perMinute("address", 1000)
	var services []http.Handler
	for _, lim := range f.Limiters {
		services = append(services, protect(t, lim, Options{}, nil, Limit{Rule: address, Key: By(func(*http.Request) string { return "192.0.2.1" })}, Limit{Rule: account, Key: By(byKey)}))
	}
	ask := func(h http.Handler) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/login", http.NoBody)
		r.Header.Set("Key", "alice")
		h.ServeHTTP(w, r)
		return w.Code
	}
	var admitted atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if ask(services[i%2]) == 200 {
				admitted.Add(1)
			}
		})
	}
	all.Wait()
	f.Sync()
	before := f.Limiter.Stats().ExactAsked
	for range 100 {
		if code := ask(services[0]); code != 429 || admitted.Load() != 10 {
			t.Fatalf("%d of 10 admitted, and then %d", admitted.Load(), code)
		}
	}
	if s := f.Limiter.Stats(); s.ExactAsked != before || s.ExactFailed != 0 {
		t.Errorf("%d calls of Redis, %d failed", s.ExactAsked-before, s.ExactFailed)
	}
	f.CutOff()
	if code := ask(services[0]); code != 429 {
		t.Errorf("in an outage: %d", code)
	}
	f.Heal()
}
