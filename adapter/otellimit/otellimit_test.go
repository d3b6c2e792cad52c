package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/adapter/otellimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

var api = limit.Must(limit.SlidingWindow("api", 10, time.Hour))

// points are what a reader has collected, by name and attributes but that of the limiter.
type points map[string]map[string]float64

// provider returns a meter and the readers of its metrics.
func provider(t *testing.T, readers int) (metric.Meter, []*sdk.ManualReader) {
	t.Helper()
	var list []*sdk.ManualReader
	var options []sdk.Option
	for range readers {
		list = append(list, sdk.NewManualReader())
		options = append(options, sdk.WithReader(list[len(list)-1]))
	}
	p := sdk.NewMeterProvider(options...)
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return p.Meter("test"), list
}

// register registers a limiter until the test has ended.
func register(t *testing.T, meter metric.Meter, name string, lim *hybrid.Limiter) {
	t.Helper()
	stop, err := otellimit.Register(meter, name, lim)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// collect reads what belongs to a limiter. Of a histogram it has the count of each bucket.
func collect(t *testing.T, reader sdk.Reader, limiter string) points {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	is := points{}
	put := func(name string, set attribute.Set, value float64, more ...string) {
		if v, _ := set.Value("limiter"); v.AsString() != limiter {
			return
		}
		for _, a := range set.ToSlice() {
			if a.Key != "limiter" {
				more = append(more, string(a.Key)+"="+a.Value.AsString())
			}
		}
		if is[name] == nil {
			is[name] = map[string]float64{}
		}
		is[name][strings.Join(more, " ")] = value
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[float64]:
				if !data.IsMonotonic {
					t.Errorf("%s may fall", m.Name)
				}
				for _, p := range data.DataPoints {
					put(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					put(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					for i, n := range p.BucketCounts {
						put(m.Name, p.Attributes, float64(n), fmt.Sprint("bucket ", i))
					}
				}
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return is
}

func (p points) want(t *testing.T, value float64, name, attributes string) {
	t.Helper()
	if got, known := p[name][attributes]; got != value || !known {
		t.Errorf("%s{%s} is %v, want %v: %.1000v", name, attributes, got, value, fmt.Sprint(p[name]))
	}
}

// wantSum checks the sum over all sources: when Redis has answered first is not for the tests
// to say.
func (p points) wantSum(t *testing.T, value float64, name, attributes string) {
	t.Helper()
	sum := 0.0
	for a, v := range p[name] {
		if strings.HasPrefix(a, attributes+" source=") {
			sum += v
		}
	}
	if sum != value {
		t.Errorf("%s{%s} is %v, want %v: %.1000v", name, attributes, sum, value, fmt.Sprint(p[name]))
	}
}

// What is collected is what the limiter says of itself.
func TestPoints(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	meter, readers := provider(t, 1)
	register(t, meter, "main", h.Limiter)
	for range 15 {
		h.Limiter.Allow("a key", api)
	}
	h.Limiter.Allow("a key", nil)
	inside.Of(h.Limiter).CountExempt("api")
	h.Sync()
	login := limit.Must(limit.SlidingWindow("login", 1, time.Hour)).Exact()
	if res, err := h.Limiter.TakeExact(t.Context(), limit.Check{Key: "new", Rule: login}); err != nil || !res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	p := collect(t, readers[0], "main")
	p.want(t, 11, "hybridlimit_admitted_units_total", "")
	p.want(t, 11, "hybridlimit_booked_units_total", "")
	p.want(t, 1, "hybridlimit_decisions_total", "outcome=allowed rule=login source=remote")
	p.want(t, 1, "hybridlimit_exact_asked_total", "")
	p.want(t, 0, "hybridlimit_exact_failed_total", "")
	p.wantSum(t, 5, "hybridlimit_decisions_total", "outcome=denied rule=api")
	p.want(t, 1, "hybridlimit_invalid_checks_total", "rule=other")
	p.want(t, 1, "hybridlimit_exempt_checks_total", "rule=api")
	p.want(t, 1, "hybridlimit_mode", "mode=synced")
	p.want(t, 0, "hybridlimit_degraded", "")
	p.want(t, 1, "hybridlimit_nodes", "")
	for name, series := range p {
		if !strings.HasPrefix(name, "hybridlimit_") {
			t.Errorf("%s", name)
		}
		for attributes := range series {
			if strings.Contains(attributes, "a key") {
				t.Errorf("%s{%s} names a key", name, attributes)
			}
		}
	}
}

// Each exchange is recorded once in its bucket for each reader, also for one that asks later
// or at the same time.
func TestExchangeHistogram(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	meter, readers := provider(t, 2)
	register(t, meter, "main", h.Limiter)
	check := func(r sdk.Reader) {
		t.Helper()
		was := inside.Of(h.Limiter).Figures().Exchanges
		p := collect(t, r, "main")["hybridlimit_exchange_duration_seconds"]
		is := inside.Of(h.Limiter).Figures().Exchanges
		for ; is != was; is = inside.Of(h.Limiter).Figures().Exchanges { // a heartbeat has ended meanwhile
			was, p = is, collect(t, r, "main")["hybridlimit_exchange_duration_seconds"]
		}
		for i, n := range is.Buckets {
			if got := p[fmt.Sprint("bucket ", i)]; got != float64(n) {
				t.Errorf("bucket %d has %v exchanges, want %d", i, got, n)
			}
		}
		if len(p) != len(is.Buckets) || is.Count() == 0 {
			t.Errorf("%d buckets, want %d of %d exchanges", len(p), len(is.Buckets), is.Count())
		}
	}
	for range 3 {
		h.Sync()
		check(readers[0])
		check(readers[0])
	}
	check(readers[1])
}

// Of more points than an SDK keeps the same ones have a place of their own in each
// collection. Otherwise the sum of all others would fall, which looks as if the process had
// started anew.
func TestMorePointsThanAreKept(t *testing.T) {
	lim, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Shutdown(context.Background())
	for i := range 1000 {
		for rule, n := limit.Must(limit.FixedWindow(fmt.Sprint(i), 1, arith.MaxWindow)), 0; n < 3; n++ { // 1 allowed, 2 denied
			lim.Allow("k", rule)
		}
	}
	meter, readers := provider(t, 1)
	register(t, meter, "main", lim)
	var first map[string]float64
	for range 8 {
		var all metricdata.ResourceMetrics
		if err := readers[0].Collect(context.Background(), &all); err != nil {
			t.Fatal(err)
		}
		now := map[string]float64{}
		for _, m := range all.ScopeMetrics[0].Metrics {
			if sum, is := m.Data.(metricdata.Sum[float64]); is && m.Name == "hybridlimit_decisions_total" {
				for _, p := range sum.DataPoints {
					now[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
				}
			}
		}
		if first == nil {
			first = now
		}
		if !maps.Equal(first, now) {
			t.Fatal("the points are not those of the collection before")
		}
	}
	if len(first) != 2000 {
		t.Errorf("%d points: the SDK has another bound, and this test tests nothing", len(first))
	}
}

// A limiter that has ended keeps its figures, until it is stopped; then there are no points of
// it, and its name is free.
func TestEndedLimiter(t *testing.T) {
	lim := hybridtest.New(t, hybridtest.Options{}).Limiter
	meter, readers := provider(t, 1)
	stop, err := otellimit.Register(meter, "main", lim)
	if err != nil {
		t.Fatal(err)
	}
	lim.Allow("k", api)
	if err := lim.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := collect(t, readers[0], "main")
	p.want(t, 1, "hybridlimit_mode", "mode=closed")
	p.want(t, 1, "hybridlimit_admitted_units_total", "")
	for range 2 {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	after := collect(t, readers[0], "main")
	delete(after, "hybridlimit_exchange_duration_seconds") // was recorded, and stays
	if len(after) != 0 {
		t.Errorf("after the end: %v", slices.Collect(maps.Keys(after)))
	}
	register(t, meter, "main", lim)
}

// broken is a meter that makes no instrument.
type broken struct{ noop.Meter }

func (broken) Float64ObservableGauge(string, ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return noop.Float64ObservableGauge{}, errors.New("no gauges today")
}

// Several limiters are told apart by name; a name that is taken and what cannot be registered
// is refused with the reason, and leaves the name free.
func TestNames(t *testing.T) {
	limiters := hybridtest.New(t, hybridtest.Options{Limiters: 2}).Limiters
	meter, readers := provider(t, 1)
	register(t, meter, "main", limiters[0])
	for _, bad := range []struct {
		meter metric.Meter
		name  string
		lim   *hybrid.Limiter
		want  string
	}{
		{meter, "main", limiters[1], `"main" is registered already`}, {meter, "", limiters[1], "must be 1 to 128 bytes"},
		{meter, "\xff", limiters[1], "UTF-8"}, {meter, strings.Repeat("n", 129), limiters[1], "128"},
		{meter, "second", nil, "limiter is nil"}, {nil, "second", limiters[1], "meter is nil"}, {broken{}, "second", limiters[1], "no gauges today"},
	} {
		if _, err := otellimit.Register(bad.meter, bad.name, bad.lim); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%q: %v, want %q", bad.name, err, bad.want)
		}
	}
	register(t, meter, "second", limiters[1])
	limiters[1].Allow("k", api)
	collect(t, readers[0], "main").want(t, 0, "hybridlimit_admitted_units_total", "")
	collect(t, readers[0], "second").want(t, 1, "hybridlimit_admitted_units_total", "")
}
