package promlimit_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hybridlimit/hybridlimit/adapter/promlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

func ExampleNew() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{})) // a Redis client shares the limits
	defer lim.Close()
	collector, err := promlimit.New("api", lim)
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(collector)

	perUser := limit.Must(limit.PerHour("per user", 2))
	for range 3 {
		lim.Allow("alice", perUser)
	}
	families, err := registry.Gather() // as promhttp.Handler does
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if family.GetName() != "hybridlimit_decisions_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetCounter().GetValue() == 0 {
				continue
			}
			for _, l := range m.GetLabel() {
				fmt.Printf("%s=%q ", l.GetName(), l.GetValue())
			}
			fmt.Println(m.GetCounter().GetValue())
		}
	}
	// Output:
	// limiter="api" outcome="allowed" rule="per user" source="local" 2
	// limiter="api" outcome="denied" rule="per user" source="local" 1
}
