package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// series is a quantity that must not grow over a run, however long.
type series struct {
	name   string
	unit   string
	scale  float64 // what one of the unit is
	slack  float64 // growth that is tolerated: of the value, from 0 on,
	least  float64 // and in any case
	values []float64
	latest float64
	count  int // of values that there have been
	stride int // one of so many is kept
}

// leastSamples is how many values must have been taken until a trend can be
// told from chance. The first third of a run is its warm-up: tables fill, pools
// grow.
const leastSamples = 40

// keptSamples bounds a series: when it is reached, every other value goes, and
// of the values to come as many.
const keptSamples = 3000

func (s *series) add(v float64) {
	s.latest = v
	s.stride = max(s.stride, 1)
	if s.count++; s.count%s.stride != 0 {
		return
	}
	s.values = append(s.values, v)
	if len(s.values) < keptSamples {
		return
	}
	for i := range keptSamples / 2 {
		s.values[i] = s.values[2*i+1]
	}
	s.values = s.values[:keptSamples/2]
	s.stride *= 2
}

// grown compares the middle of the values in the last third of the run with
// that of the second third. Medians do not mind what a fault does for a
// moment, such as a queue that builds up in an outage. ok is false if there
// are too few values to tell.
//
// Both are a third of the run apart. What grows by g a minute is found out in a run of
//
//	n > 3 · (slack · value + least) / g
//
// minutes: of a heap of 15 MiB a leak of 0.4 MiB a minute in 20 minutes.
func (s *series) grown() (from, to float64, grown, ok bool) {
	n := len(s.values)
	if n < leastSamples {
		return 0, 0, false, false
	}
	from, to = median(s.values[n/3:2*n/3]), median(s.values[2*n/3:])
	return from, to, to > from*(1+s.slack)+s.least, true
}

// soars tells whether there is no need to wait for the end of the run: whoever
// looks again and again needs a wider tolerance.
func (s *series) soars() bool {
	from, to, _, ok := s.grown()
	return ok && to > from*(1+3*s.slack)+3*s.least
}

func (s *series) String() string {
	from, to, grown, ok := s.grown()
	word := "flat"
	switch {
	case !ok:
		return fmt.Sprintf("%s: too few samples (%d) to tell", s.name, len(s.values))
	case grown:
		word = "grows"
	}
	return fmt.Sprintf("%s: %s, %.4g → %.4g%s", s.name, word, from/s.scale, to/s.scale, s.unit)
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	if n == 0 {
		return 0
	}
	return (v[(n-1)/2] + v[n/2]) / 2
}

// gauges is all that must stay flat.
type gauges struct {
	heap, goroutines, keys, memory series
}

const mib = 1 << 20

func newGauges() *gauges {
	return &gauges{
		heap:       series{name: "heap", unit: " MiB", scale: mib, slack: 0.10, least: mib},
		goroutines: series{name: "goroutines", scale: 1, slack: 0.10, least: 8},
		keys:       series{name: "Redis keys", scale: 1, slack: 0.2, least: 250},
		memory:     series{name: "Redis memory", unit: " MiB", scale: mib, slack: 0.15, least: mib / 2},
	}
}

func (g *gauges) all() []*series { return []*series{&g.heap, &g.goroutines, &g.keys, &g.memory} }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
