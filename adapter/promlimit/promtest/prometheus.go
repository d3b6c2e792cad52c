package promtest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// Prometheus is its store and its engine, without a server: it scrapes when it is told to.
// Build one with [Open]; the zero value is not usable. It is for one goroutine.
type Prometheus struct {
	// Labels are the names of the labels of what was scraped, by name of the series.
	Labels map[string][]string

	db     *tsdb.DB
	engine *promql.Engine
}

// Open returns a Prometheus that keeps its data in a folder. The caller must Close it.
func Open(dir string) (*Prometheus, error) {
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	return &Prometheus{Labels: map[string][]string{}, db: db, engine: engine}, nil
}

// Close ends it. The data stay in the folder.
func (p *Prometheus) Close() error {
	_ = p.engine.Close()
	return p.db.Close()
}

// Scrape asks for a page of metrics, and stores what it says as of a time, with the labels
// job and instance.
func (p *Prometheus) Scrape(url, instance string, at time.Time) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text := expfmt.NewTextParser(model.UTF8Validation)
	page, err := text.TextToMetricFamilies(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("promtest: %s: %s, %w", url, resp.Status, err)
	}
	app := p.db.Appender(context.Background())
	put := func(name string, of []*dto.LabelPair, value float64, more ...string) {
		b := labels.NewBuilder(labels.FromStrings(append(more, model.MetricNameLabel, name, "job", "service", "instance", instance)...))
		for _, l := range of {
			b.Set(l.GetName(), l.GetValue())
		}
		series := b.Labels()
		if _, e := app.Append(0, series, at.UnixMilli(), value); e != nil {
			err = e
		}
		p.Labels[name] = slices.Sorted(maps.Keys(series.Map()))
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
	if err != nil {
		_ = app.Rollback()
		return err
	}
	return app.Commit()
}

// Evaluate returns the values of an expression, one for each step.
func (p *Prometheus) Evaluate(expr string, from, to time.Time, step time.Duration) (promql.Matrix, error) {
	q, err := p.engine.NewRangeQuery(context.Background(), storage.Queryable(p.db), nil, expr, from, to, step)
	if err != nil {
		return nil, fmt.Errorf("promtest: %s: %w", expr, err)
	}
	defer q.Close()
	res := q.Exec(context.Background())
	if res.Err != nil || len(res.Warnings) != 0 {
		return nil, fmt.Errorf("promtest: %s: %w, %v", expr, res.Err, res.Warnings)
	}
	m, err := res.Matrix()
	m = slices.Clone(m)
	for i := range m { // Close takes the points back
		m[i].Floats = slices.Clone(m[i].Floats)
	}
	return m, err
}
