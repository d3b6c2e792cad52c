// Package otellimit exports what hybrid limiters say about themselves as OpenTelemetry
// metrics, under the names that package promlimit has: decisions by rule, outcome and source,
// what became of the units, how Redis answers. There is never an attribute for a key.
//
//	stop, err := otellimit.Register(otel.Meter("api"), "api", lim)
//
// All names begin with hybridlimit_. Each point has the attribute "limiter", which tells
// several limiters of one process apart. At most 1,000 names of rules have points of their
// own; all others share rule="other". What is 0 of a rule has no point: an SDK keeps 2,000
// points of a metric unless it is told otherwise, and a rule has up to eleven. It needs the
// API of OpenTelemetry only: which SDK collects the metrics, and how often, is for the program
// to choose.
package otellimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit/adapter/internal/figures"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// maxName bounds the name of a limiter, in bytes.
const maxName = 128

// Register makes the figures of a limiter known to a meter. name is the attribute "limiter" of
// all its points: 1 to 128 bytes of UTF-8, different for each limiter that is registered and
// not stopped. Each collection calls [hybrid.Limiter.Stats] once, which takes some
// milliseconds with 65,536 keys. A limiter that was closed goes on to report its last figures,
// until stop is called.
//
// OpenTelemetry has no histograms that are read, so how long exchanges took is recorded in
// hybridlimit_exchange_duration_seconds with each collection: all that have ended since the
// one before, each as the middle of its bucket. Their number in each bucket is exact, and
// their sum is not.
func Register(meter metric.Meter, name string, lim *hybrid.Limiter) (stop func() error, err error) {
	switch {
	case meter == nil:
		return nil, errors.New("otellimit: the meter is nil")
	case lim == nil:
		return nil, errors.New("otellimit: the limiter is nil")
	case name == "" || len(name) > maxName || !utf8.ValidString(name):
		return nil, fmt.Errorf("otellimit: name %.140q: must be 1 to %d bytes of UTF-8", name, maxName)
	}
	if !names.take(name) {
		return nil, fmt.Errorf("otellimit: a limiter named %q is registered already; give each a name of its own", name)
	}
	r, err := register(meter, name, lim)
	if err != nil {
		names.free(name)
		return nil, fmt.Errorf("otellimit: %q: %w", name, err)
	}
	var once sync.Once
	return func() (err error) {
		once.Do(func() {
			err = r.Unregister()
			names.free(name)
		})
		return err
	}, nil
}

// names are those of the limiters that are registered. OpenTelemetry itself would mix up the
// points of two with one name.
var names taken

type taken struct {
	mu sync.Mutex
	is map[string]bool
}

func (t *taken) take(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.is[name] {
		return false
	}
	if t.is == nil {
		t.is = map[string]bool{}
	}
	t.is[name] = true
	return true
}

func (t *taken) free(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.is, name)
}

// register makes the instruments, and the callback that reads the limiter.
func register(meter metric.Meter, name string, lim *hybrid.Limiter) (metric.Registration, error) {
	all, errs := figures.Metrics(), []error(nil)
	instruments, observables := make([]metric.Float64Observable, len(all)), make([]metric.Observable, len(all))
	for i, m := range all {
		var err error
		if instruments[i], err = instrument(meter, m); err != nil {
			errs = append(errs, err)
		}
		observables[i] = instruments[i]
	}
	own := attribute.String("limiter", name)
	latency, err := newLatency(meter, own)
	if errs = append(errs, err); errors.Join(errs...) != nil {
		return nil, errors.Join(errs...)
	}
	return meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		s := figures.Of(lim)
		for i, m := range all {
			byRule := slices.Contains(m.Labels, "rule")
			m.Read(s, func(value float64, labels ...string) {
				if byRule && value == 0 {
					return // an SDK keeps so many points of a metric, and no more
				}
				o.ObserveFloat64(instruments[i], value, metric.WithAttributeSet(attributes(own, m.Labels, labels)))
			})
		}
		latency.record(ctx, s.Exchanges)
		return nil
	}, observables...)
}

// instrument returns the instrument of a metric.
func instrument(meter metric.Meter, m figures.Metric) (metric.Float64Observable, error) {
	unit := ""
	if strings.HasSuffix(m.Name, "_seconds") {
		unit = "s"
	}
	if m.Counter {
		return meter.Float64ObservableCounter(m.Name, metric.WithDescription(m.Help), metric.WithUnit(unit))
	}
	return meter.Float64ObservableGauge(m.Name, metric.WithDescription(m.Help), metric.WithUnit(unit))
}

func attributes(own attribute.KeyValue, labels, values []string) attribute.Set {
	list := []attribute.KeyValue{own}
	for i, l := range labels {
		list = append(list, attribute.String(l, values[i]))
	}
	return attribute.NewSet(list...)
}
