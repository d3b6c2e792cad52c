package otellimit_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/hybridlimit/hybridlimit/adapter/otellimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

func ExampleRegister() {
	reader := sdk.NewManualReader() // in place of an exporter
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	defer provider.Shutdown(context.Background())
	lim := limit.Must(hybrid.New(nil, hybrid.Options{})) // a Redis client shares the limits
	defer lim.Close()
	stop, err := otellimit.Register(provider.Meter("api"), "api", lim)
	if err != nil {
		panic(err)
	}
	defer stop()

	perUser := limit.Must(limit.PerHour("per user", 2))
	for range 3 {
		lim.Allow("alice", perUser)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		panic(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name == "hybridlimit_admitted_units_total" {
			fmt.Println(m.Name, m.Data.(metricdata.Sum[float64]).DataPoints[0].Value)
		}
	}
	// Output: hybridlimit_admitted_units_total 2
}
