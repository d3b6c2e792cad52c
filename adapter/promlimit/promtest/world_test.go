package promtest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

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
	h      *hybridtest.Harness
	db     *tsdb.DB
	engine *promql.Engine
	start  time.Time
	names  map[string][]string // of the series that were scraped: the names of their labels
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
	w := &world{names: map[string][]string{}, start: time.Unix(1_800_000_000, 0)}
	var err error
	if w.db, err = tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.db.Close() })
	w.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	t.Cleanup(func() { _ = w.engine.Close() })
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
	return urls
}

var (
	perUser = limit.Must(limit.SlidingWindow("api", 100, time.Minute))
	login   = limit.Must(limit.TokenBucket("login", 5, 5, time.Minute))
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
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	page, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	app := w.db.Appender(context.Background())
	put := func(name string, of []*dto.LabelPair, value float64, more ...string) {
		b := labels.NewBuilder(labels.FromStrings(append(more, model.MetricNameLabel, name, "job", "service", "instance", instance)...))
		for _, l := range of {
			b.Set(l.GetName(), l.GetValue())
		}
		series := b.Labels()
		if _, err := app.Append(0, series, w.now().UnixMilli(), value); err != nil {
			t.Fatal(err)
		}
		w.names[name] = slices.Sorted(maps.Keys(series.Map()))
	}
	for name, family := range page {
		for _, m := range family.Metric {
			if h := m.Histogram; h != nil {
				for _, b := range h.Bucket {
					put(name+"_bucket", m.Label, float64(b.GetCumulativeCount()), "le", fmt.Sprint(b.GetUpperBound()))
				}
				put(name+"_count", m.Label, float64(h.GetSampleCount()))
				put(name+"_sum", m.Label, h.GetSampleSum())
				continue
			}
			put(name, m.Label, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// at returns when a scrape was.
func (w *world) at(scrape int) time.Time { return w.start.Add(time.Duration(scrape+1) * interval) }

// evaluate returns the values of an expression at the time of each scrape.
func (w *world) evaluate(t *testing.T, expr string) promql.Matrix {
	t.Helper()
	q, err := w.engine.NewRangeQuery(context.Background(), storage.Queryable(w.db), nil, expr, w.at(0), w.at(scrapes-1), interval)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return nil
	}
	defer q.Close()
	res := q.Exec(context.Background())
	if res.Err != nil || len(res.Warnings) != 0 {
		t.Errorf("%s: %v, %v", expr, res.Err, res.Warnings)
		return nil
	}
	m, err := res.Matrix()
	if err != nil {
		t.Errorf("%s: %v", expr, err)
	}
	return slices.Clone(m)
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
			has := w.names[v.Name]
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
