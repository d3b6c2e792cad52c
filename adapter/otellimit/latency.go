package otellimit

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit/adapter/internal/figures"
	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// latency records how long exchanges took, see [Register].
type latency struct {
	histogram metric.Float64Histogram
	own       metric.MeasurementOption

	mu   sync.Mutex
	last inside.Latency // recorded so far
}

func newLatency(meter metric.Meter, own attribute.KeyValue) (*latency, error) {
	var bounds []float64
	for _, b := range (inside.Latency{}).Bounds() {
		bounds = append(bounds, b.Seconds())
	}
	h, err := meter.Float64Histogram(figures.Exchange, metric.WithDescription(figures.ExchangeHelp), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...))
	return &latency{histogram: h, own: metric.WithAttributeSet(attribute.NewSet(own))}, err
}

// record records the exchanges that have ended since the call before. Several readers may
// collect at the same time: then an older figure than the last one records nothing.
func (l *latency) record(ctx context.Context, is inside.Latency) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bounds, below := is.Bounds(), 0.0
	for i, n := range is.Buckets {
		middle := is.Max.Seconds() // above all bounds
		if i < len(bounds) {
			middle, below = (below+bounds[i].Seconds())/2, bounds[i].Seconds()
		}
		for ; l.last.Buckets[i] < n; l.last.Buckets[i]++ {
			l.histogram.Record(ctx, middle, l.own)
		}
	}
}
