package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

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
	h := handler(lim)
	get := func(user string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(user, "")
		w := httptest.NewRecorder()
		h(w, r)
		return w
	}
	for left := 99; left >= 0; left-- {
		if w := get("alice"); w.Code != http.StatusOK || w.Body.String() != fmt.Sprintln(left, "requests left") {
			t.Fatalf("with %d left: %d, %s", left, w.Code, w.Body)
		}
	}
	if w := get("alice"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("above the limit: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	if w := get("bob"); w.Code != http.StatusOK {
		t.Errorf("another user: %d", w.Code)
	}
}
