package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// line writes a measurement in the form of Go's benchmarks. What it takes is by check, or by
// second where there are none.
func (s sample) line(r row, l limiter) string {
	var b strings.Builder
	fmt.Fprintf(&b, "BenchmarkCost/%s/%v %d", l.name, r, max(s.checks, 1))
	figure := func(v float64, unit string) { fmt.Fprintf(&b, " %.4g %s", v, unit) }
	per, of := float64(s.checks), "check"
	if s.checks == 0 {
		per, of = s.wall.Seconds(), "s"
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	figure(us(s.client)/per, "client-us/"+of)
	figure(us(s.redis)/per, "redis-us/"+of)
	figure(s.bytes/per, "B/"+of)
	second := s.wall.Seconds()
	figure(s.commands/second, "commands/s")
	if s.checks > 0 {
		figure(float64(s.checks)/second, "checks/s")
		figure(100*float64(s.refused)/float64(s.checks), "refused-%")
	}
	if strings.HasPrefix(l.name, "hybrid") {
		figure(float64(s.stats.KeysSynced)/second, "keys/s")
		figure(r.expects(r.rule(l.window), float64(s.checks)/second), "formula-keys/s")
		figure(float64(s.stats.Batches)/second, "calls/s")
		figure(float64(s.stats.Heartbeats)/second, "beats/s")
		figure(float64(s.stats.Failures), "failed")
	}
	if len(s.took) > 0 {
		slices.Sort(s.took)
		figure(us(percentile(s.took, 500)), "p50-us")
		figure(us(percentile(s.took, 990)), "p99-us")
		figure(us(percentile(s.took, 999)), "p99.9-us")
	}
	return b.String()
}

// percentile returns what so many of 1,000 checks took at the most, of a sorted list.
func percentile(took []time.Duration, permille int) time.Duration {
	return took[min(len(took)*permille/1000, len(took)-1)]
}
