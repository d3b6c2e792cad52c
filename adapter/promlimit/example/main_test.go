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

// eventually waits until the page of metrics has a line.
func eventually(t *testing.T, p *programtest.Program, line string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		resp, page := p.Get("/metrics", "")
		if resp.StatusCode == http.StatusOK && strings.Contains(page, "\n"+line+"\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d, and no line %s in\n%s", resp.StatusCode, line, page)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// The page of metrics tells of requests and of outages. It is not limited itself.
func TestProgram(t *testing.T) {
	rdb := miniredis.RunT(t)
	p := programtest.Start(t, rdb.Addr())
	eventually(t, p, `hybridlimit_mode{limiter="api",mode="synced"} 1`)
	for range 3 {
		if resp, body := p.Get("/", "alice"); resp.StatusCode != http.StatusOK || body != "hello alice\n" {
			t.Errorf("alice: %d, %s", resp.StatusCode, body)
		}
	}
	eventually(t, p, `hybridlimit_admitted_units_total{limiter="api"} 3`)
	eventually(t, p, `hybridlimit_booked_units_total{limiter="api"} 3`)

	rdb.Close()
	eventually(t, p, `hybridlimit_degraded{limiter="api"} 1`)
	if resp, body := p.Get("/", "alice"); resp.StatusCode != http.StatusOK || body != "hello alice\n" {
		t.Errorf("alice, without Redis: %d, %s", resp.StatusCode, body)
	}
	eventually(t, p, `hybridlimit_decisions_total{limiter="api",outcome="allowed",rule="api",source="degraded"} 1`)
	p.Interrupt()
}
