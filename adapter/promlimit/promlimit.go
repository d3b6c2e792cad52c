// Package promlimit exports what hybrid limiters say about themselves as Prometheus metrics:
// decisions by rule, outcome and source, what became of the units, how Redis answers. There is
// never a label for a key.
//
//	err := promlimit.Register(prometheus.DefaultRegisterer, "api", lim)
//
// All names begin with hybridlimit_. Each series has the label "limiter", which tells several
// limiters of one process apart. At most 1,000 names of rules have series of their own; all
// others share the label rule="other". alerts.yaml and dashboard.json beside this package are
// for these metrics.
package promlimit

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hybridlimit/hybridlimit/adapter/internal/figures"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// maxName bounds the name of a limiter, in bytes.
const maxName = 128

// collector reads a limiter each time that it is asked.
type collector struct {
	lim      *hybrid.Limiter
	metrics  []figures.Metric
	descs    []*prometheus.Desc // of metrics
	exchange *prometheus.Desc
}

// New returns a collector of a limiter's figures, safe for concurrent use. name is the label
// "limiter" of all its series: 1 to 128 bytes of UTF-8, different for each limiter that is
// registered. Each collection calls [hybrid.Limiter.Stats] once, which takes some
// milliseconds with 65,536 keys. A limiter that was closed goes on to report its last figures.
func New(name string, lim *hybrid.Limiter) (prometheus.Collector, error) {
	switch {
	case lim == nil:
		return nil, errors.New("promlimit: the limiter is nil")
	case name == "" || len(name) > maxName || !utf8.ValidString(name):
		return nil, fmt.Errorf("promlimit: name %.140q: must be 1 to %d bytes of UTF-8", name, maxName)
	}
	labels := prometheus.Labels{"limiter": name}
	c := &collector{lim: lim, metrics: figures.Metrics(), exchange: prometheus.NewDesc(figures.Exchange, figures.ExchangeHelp, nil, labels)}
	for _, m := range c.metrics {
		c.descs = append(c.descs, prometheus.NewDesc(m.Name, m.Help, m.Labels, labels))
	}
	return c, nil
}

// Register registers the collector of a limiter. A second one of the same name is an error
// that wraps [prometheus.AlreadyRegisteredError].
func Register(reg prometheus.Registerer, name string, lim *hybrid.Limiter) error {
	if reg == nil {
		return errors.New("promlimit: the registerer is nil")
	}
	c, err := New(name, lim)
	if err != nil {
		return err
	}
	err = reg.Register(c)
	if are := (prometheus.AlreadyRegisteredError{}); errors.As(err, &are) {
		return fmt.Errorf("promlimit: a limiter named %q is registered already; give each a name of its own: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("promlimit: %q: %w", name, err)
	}
	return nil
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
	out <- c.exchange
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := figures.Of(c.lim)
	for i, m := range c.metrics {
		kind := prometheus.GaugeValue
		if m.Counter {
			kind = prometheus.CounterValue
		}
		m.Read(s, func(value float64, labels ...string) {
			is, err := prometheus.NewConstMetric(c.descs[i], kind, value, labels...)
			send(out, c.descs[i], is, err)
		})
	}
	l, sum, below := s.Exchanges, uint64(0), map[float64]uint64{}
	for i, bound := range l.Bounds() {
		sum += l.Buckets[i]
		below[bound.Seconds()] = sum
	}
	is, err := prometheus.NewConstHistogram(c.exchange, l.Count(), l.Sum.Seconds(), below)
	send(out, c.exchange, is, err)
}

// send sends a metric, or the error with which the collection fails.
func send(out chan<- prometheus.Metric, desc *prometheus.Desc, m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	out <- m
}
