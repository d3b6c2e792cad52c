package promtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/hybridlimit/hybridlimit/adapter/promlimit"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The course of a world, in scrapes.
const (
	interval  = 15 * time.Second
	cutOff    = 60  // after this scrape Redis is away
	healed    = 100 // and after this one back
	scrapes   = 180
	exchanges = 3 // with Redis between two scrapes
)

// world is two processes with a limiter each, whose metrics a Prometheus has scraped.
type world struct {
	h     *hybridtest.Harness
	prom  *Prometheus
	start time.Time
}

// newWorld makes the processes serve traffic, loses Redis for ten minutes, and scrapes them
// over connections all the time. Time is the clock of the limiters.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := emptyWorld(t)
	w.h = hybridtest.New(t, hybridtest.Options{Limiters: 2})
	w.start = w.now()
	urls := w.serve(t)
	for i := range scrapes {
		w.traffic()
		switch i {
		case cutOff:
			w.h.CutOff()
		case healed:
			w.h.Heal()
		}
		if i < cutOff || i > healed {
			for range exchanges {
				w.h.Sync()
			}
		}
		w.h.Clock.Advance(interval)
		for instance, url := range urls {
			w.scrape(t, instance, url)
		}
	}
	return w
}

// emptyWorld has neither processes nor series.
func emptyWorld(t *testing.T) *world {
	t.Helper()
	w := &world{start: time.Unix(1_800_000_000, 0)}
	var err error
	if w.prom, err = Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.prom.Close() })
	return w
}

func (w *world) now() time.Time { return time.Unix(0, int64(w.h.Clock.Now())) }

// serve serves the metrics of each process, and returns the addresses by instance.
func (w *world) serve(t *testing.T) map[string]string {
	t.Helper()
	urls := map[string]string{}
	for i, lim := range w.h.Limiters {
		reg := prometheus.NewRegistry()
		if err := promlimit.Register(reg, "main", lim); err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
		t.Cleanup(srv.Close)
		urls[fmt.Sprintf("node-%d:8080", i)] = srv.URL
	}
	// What hybridlimit serve has besides; a test there compares the file with its page.
	srv := httptest.NewServer(http.FileServer(http.Dir("testdata")))
	t.Cleanup(srv.Close)
	urls["serve:8080"] = srv.URL + "/serve.txt"
	return urls
}

var (
	perUser = limit.Must(limit.SlidingWindow("api", 100, time.Minute))
	login   = limit.Must(limit.TokenBucket("login", 5, time.Minute, 5))
	planned = limit.Must(limit.SlidingWindow("planned", 10, time.Minute)).DryRun()
)

// traffic is that of a scrape interval: some of it is refused.
func (w *world) traffic() {
	for _, lim := range w.h.Limiters {
		for i := range 40 {
			user := strconv.Itoa(i % 4)
			lim.Allow(user, perUser)
			lim.Allow(user, planned)
			if i%8 == 0 {
				lim.Allow("somebody", login)
			}
		}
	}
}

// scrape asks one process, and stores what it answers.
func (w *world) scrape(t *testing.T, instance, url string) {
	t.Helper()
	if err := w.prom.Scrape(url, instance, w.now()); err != nil {
		t.Fatal(err)
	}
}

// at returns when a scrape was.
func (w *world) at(scrape int) time.Time { return w.start.Add(time.Duration(scrape+1) * interval) }

// evaluate returns the values of an expression at the time of each scrape.
func (w *world) evaluate(t *testing.T, expr string) promql.Matrix {
	t.Helper()
	m, err := w.prom.Evaluate(expr, w.at(0), w.at(scrapes-1), interval)
	if err != nil {
		t.Error(err)
	}
	return m
}

// checkNames checks that all that an expression selects is among what was scraped.
func (w *world) checkNames(t *testing.T, where, expr string) {
	t.Helper()
	is, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	selected := 0
	parser.Inspect(is, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			selected++
			has := w.prom.Labels[v.Name]
			if has == nil {
				t.Errorf("%s: there is no %s", where, v.Name)
			}
			for _, m := range v.LabelMatchers {
				if !slices.Contains(has, m.Name) {
					t.Errorf("%s: %s has no label %s", where, v.Name, m.Name)
				}
			}
		}
		return nil
	})
	if selected == 0 {
		t.Errorf("%s selects nothing", where)
	}
}
