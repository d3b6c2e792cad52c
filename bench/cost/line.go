package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/rig"
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
	figure(us(s.redis.Processor)/per, "redis-us/"+of)
	figure(s.redis.Bytes/per, "B/"+of)
	second := s.wall.Seconds()
	figure(s.redis.Commands/second, "commands/s")
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
		figure(us(rig.Percentile(s.took, 500)), "p50-us")
		figure(us(rig.Percentile(s.took, 990)), "p99-us")
		figure(us(rig.Percentile(s.took, 999)), "p99.9-us")
	}
	return b.String()
}
