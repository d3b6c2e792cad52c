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
	if stderr := p.Interrupt(); strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "request has no key") {
		t.Errorf("it has said %q, and should only complain of the request without a key", stderr)
	}
}
