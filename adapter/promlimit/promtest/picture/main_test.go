package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/adapter/promlimit/promtest"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // it reports every failed dial
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// What was never counted has no data, and says so.
func TestNoData(t *testing.T) {
	prom, err := promtest.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer prom.Close()
	d, err := promtest.ReadDashboard("../../dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := draw(&page, d, prom, time.Unix(1e9, 0), time.Unix(1e9+600, 0), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	panels := 0
	for _, p := range d.Panels {
		if p.Type != "row" {
			panels++
		}
	}
	if n := strings.Count(page.String(), ">no data<"); n != panels {
		t.Errorf("%d of %d panels say that there is no data", n, panels)
	}
}

// Bad arguments, a dashboard that is not there and an interrupt end it with an error.
func TestBadArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	for _, args := range [][]string{nil, {"-out", file, "-for", "1s"}, {"-out", file, "-dashboard", "none.json"}, {"-no"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ctx, []string{"-out", file, "-dashboard", "../../dashboard.json"}, io.Discard)
	if !errors.Is(err, context.Canceled) && !errors.Is(err, redistest.ErrNotInstalled) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a page was written")
	}
}
