package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// lines writes a line for each limiter, in the form of Go's benchmarks.
func (m *measurement) lines() string {
	var b strings.Builder
	for _, s := range m.subjects {
		fmt.Fprintf(&b, "BenchmarkSmall/%s/%v %d", s.name, m.row, len(m.arrivals))
		m.figures(s, func(v float64, unit string) { fmt.Fprintf(&b, " %.5g %s", v, unit) })
		b.WriteByte('\n')
	}
	return b.String()
}

// figures hands on what has come of a limiter. The first one is the process that is right.
func (m *measurement) figures(s *subject, figure func(v float64, unit string)) {
	right := m.subjects[0].log
	units, rightUnits := float64(s.log.Units()), float64(right.Units())
	mean, most := s.log.FullestWindows(m.per)
	rightMean, _ := right.FullestWindows(m.per)
	figure(units, "units")
	figure(mean/float64(m.limit), "fullest")
	figure(float64(most)/float64(m.limit), "fullest-worst")
	if s.name == one {
		figure(ms(rig.Percentile(m.late, 990)), "late-p99-ms")
		return
	}
	figure(units/rightUnits, "to-one")
	figure(mean/rightMean, "fullest-to-one")
	missing := float64(s.log.Missing(right))
	figure(missing, "missing")
	figure(100*missing/rightUnits, "missing-%")
	if s.server == nil {
		return
	}
	second := s.wall.Seconds()
	figure(s.redis.Calls/second, "calls/s")
	figure(float64(s.redis.Processor.Microseconds())/float64(len(m.arrivals)), "redis-us/check")
	figure(float64(s.stats.Failures), "failed")
	if w := s.watch; w != nil && len(w.took) > 0 {
		slices.Sort(w.took)
		figure(ms(rig.Percentile(w.took, 500)), "heard-p50-ms")
		figure(ms(rig.Percentile(w.took, 990)), "heard-p99-ms")
		figure(100*float64(w.never)/float64(len(w.took)), "unheard-%")
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }
