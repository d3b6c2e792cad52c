package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/programtest"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

// A user has 100 requests a minute, and is then told when to come back. The program ends on
// Ctrl-C.
func TestProgram(t *testing.T) {
	p := programtest.Start(t, miniredis.RunT(t).Addr())
	start, admitted := time.Now(), 0
	resp, body := p.Get("/", "alice")
	if body != "hello alice\n" || !strings.HasPrefix(resp.Header.Get("RateLimit"), `"api";r=99;`) {
		t.Errorf("the first request: %s, %v", body, resp.Header)
	}
	for ; resp.StatusCode == http.StatusOK; resp, _ = p.Get("/", "alice") {
		admitted++
	}
	if admitted < 100 || admitted > 110 && time.Since(start) < time.Minute {
		t.Errorf("%d requests were admitted", admitted)
	}
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("above the limit: %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if resp, _ := p.Get("/", "bob"); resp.StatusCode != http.StatusOK {
		t.Errorf("another user: %d", resp.StatusCode)
	}
	if resp, _ := p.Get("/", ""); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("nobody: %d", resp.StatusCode)
	}
	stderr := p.Interrupt()
	for _, want := range []string{"INFO rate limiter synced nodes=1", "request has no key", "http: Server closed"} {
		if strings.Count(stderr, want) != 1 {
			t.Errorf("it has not said once %q, but\n%s", want, stderr)
		}
	}
	if strings.Count(stderr, "\n") != 3 {
		t.Errorf("it has said more than that:\n%s", stderr)
	}
}

// While Redis is away a program goes on, and says so in one line.
func TestOutage(t *testing.T) {
	rdb := miniredis.RunT(t)
	p := programtest.Start(t, rdb.Addr())
	p.Await("rate limiter synced")
	rdb.Close()
	p.Await("rate limiter degraded")
	if resp, body := p.Get("/", "alice"); resp.StatusCode != http.StatusOK || body != "hello alice\n" {
		t.Errorf("without Redis: %d, %s", resp.StatusCode, body)
	}
	if err := rdb.Restart(); err != nil {
		t.Fatal(err)
	}
	p.Await("outage_seconds=")
	if stderr := p.Interrupt(); !strings.Contains(stderr, "shards_down=1 fallback=fair-share\n") || strings.Contains(stderr, "redis: ") {
		t.Errorf("the console has\n%s", stderr)
	}
}
