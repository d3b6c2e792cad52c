package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// Each panel is drawn from a real run, in its place, with data; the outage is marked in
// each that has a course.
func TestPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	err := run(t.Context(), []string{"-for", "10s", "-out", file, "-dashboard", "../../dashboard.json"}, io.Discard)
	if errors.Is(err, redistest.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Skip("needs a real Redis: redis-server is not in PATH")
	}
	if err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := promtest.ReadDashboard("../../dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		_, is, found := strings.Cut(string(html), fmt.Sprintf(`id="panel-%d"`, p.ID))
		is, _, _ = strings.Cut(is, "</div>\n</div>")
		switch {
		case p.Type == "row":
			found, is = strings.Contains(string(html), ">"+p.Title+"</div>"), ""
		case ofTheServer(p): // none runs here: promtest asks these queries of a page of its own
			if !strings.Contains(is, "no data") {
				t.Errorf("%s has data", p.Title)
			}
		case !strings.Contains(is, p.Title) || strings.Contains(is, "no data"):
			t.Errorf("%s: %s", p.Title, is)
		case p.Type == "timeseries" && (!strings.Contains(is, "<path d=\"M") || !strings.Contains(is, "<rect")):
			t.Errorf("%s has no line, or no mark: %s", p.Title, is)
		}
		if !found {
			t.Errorf("%s is not there", p.Title)
		}
	}
	if bad := regexp.MustCompile(`NaN|Inf|ZgotmplZ`).Find(html); bad != nil {
		t.Errorf("the page has %s", bad)
	}
}

// ofTheServer reports whether all that a panel shows are metrics of "hybridlimit serve".
func ofTheServer(p promtest.Panel) bool {
	return len(p.Targets) > 0 && !slices.ContainsFunc(p.Targets, func(q promtest.Target) bool {
		return !regexp.MustCompile(`hybridlimit_(rls|resp|rules)_`).MatchString(q.Expr)
	})
}

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

// Numbers are short, and have the unit of the dashboard.
func TestText(t *testing.T) {
	for want, in := range map[string]struct {
		x    float64
		unit string
	}{
		"0": {0, "s"}, "250 µs": {0.00025, "s"}, "12.5 ms": {0.0125, "s"}, "1.5 s": {1.5, "s"}, "10 min": {600, "s"},
		"0%": {0, "percentunit"}, "37.5%": {0.375, "percentunit"}, "950": {950, "short"}, "1.5K": {1500, "short"}, "2M": {2e6, "short"},
	} {
		if got := text(in.x, in.unit); got != want {
			t.Errorf("%v %s: %q, want %q", in.x, in.unit, got, want)
		}
	}
	for most, want := range map[float64][2]float64{0: {1, 0.5}, 0.8: {0.8, 0.2}, 1: {1, 0.2}, 9: {10, 2}, 13: {15, 5}, 2300: {2500, 500}} {
		if top, step := scale(most); fmt.Sprintf("%.3g %.3g", top, step) != fmt.Sprintf("%.3g %.3g", want[0], want[1]) {
			t.Errorf("%v: up to %v by %v, want %v", most, top, step, want)
		}
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
