package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A user has 100 requests a minute, and is then told when to come back.
func TestHandler(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(hybrid.RedisOptions(m.Addr()))
	defer rdb.Close()
	lim, err := hybrid.New(rdb, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close(context.Background())
	protect, err := httplimit.New(lim, perUser, httplimit.By(user), httplimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := protect(http.HandlerFunc(hello))
	get := func(user string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(user, "")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for left := 99; left >= 0; left-- {
		w := get("alice")
		if says := fmt.Sprintf(`"api";r=%d;`, left); w.Code != http.StatusOK || w.Body.String() != "hello alice\n" || !strings.HasPrefix(w.Header().Get("RateLimit"), says) {
			t.Fatalf("with %d left: %d, %s, %v", left, w.Code, w.Body, w.Header())
		}
	}
	if w := get("alice"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("above the limit: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	if w := get("bob"); w.Code != http.StatusOK {
		t.Errorf("another user: %d", w.Code)
	}
	if w := get(""); w.Code != http.StatusBadRequest {
		t.Errorf("nobody: %d", w.Code)
	}
}
