package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/bench/internal/capacity"
	"github.com/hybridlimit/hybridlimit/bench/internal/fleet"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/inside"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A line says by check what has added up, and by second what an idle limiter goes on using.
func TestLine(t *testing.T) {
	ours, nobody := limiters[1], limiters[0]
	stats := inside.Figures{Batches: 10, KeysSynced: 500, Heartbeats: 2, Failures: 1}
	took := make([]time.Duration, 1000)
	took[0], took[1] = 7*time.Microsecond, 5*time.Microsecond
	s := sample{checks: 1000, refused: 250, wall: 2 * time.Second, client: 3 * time.Millisecond, redis: fleet.Usage{Processor: time.Millisecond, Commands: 600, Bytes: 64_000}, stats: stats, took: took}
	got := s.line(row{5000, 2000, 1, far}, ours)
	for _, want := range []string{
		"BenchmarkCost/hybrid/5000/2000/1/far 1000 3 client-us/check 1 redis-us/check 64 B/check 300 commands/s 500 checks/s 25 refused-% 250 keys/s ",
		" formula-keys/s 5 calls/s 1 beats/s 1 failed 0 p50-us 0 p99-us 7 p99.9-us",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	s = sample{wall: 2 * time.Second, client: 3 * time.Millisecond, redis: fleet.Usage{Processor: time.Millisecond, Commands: 24, Bytes: 4000}}
	got = s.line(row{0, 20000, 1, idle}, nobody)
	if want := "BenchmarkCost/nothing/0/20000/1/idle 1 1500 client-us/s 500 redis-us/s 2000 B/s 12 commands/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The kinds of loads are what they are called: by their own limits, nearly nobody, half, or
// nearly everybody is refused.
func TestKinds(t *testing.T) {
	for _, r := range rows {
		if r.rate == 0 {
			continue
		}
		rule := r.rule(false)
		allowed := 0.0
		for _, rate := range capacity.Zipf(r.keys, exponent, float64(r.rate)) {
			allowed += min(rate, float64(arith.Of(rule).Units)/rule.Period().Seconds())
		}
		refused := 1 - allowed/float64(r.rate)
		low, high := map[kind]float64{far: 0, at: 0.3, spent: 0.88, scarce: 0.9}[r.kind], map[kind]float64{far: 0, at: 0.6, spent: 0.92, scarce: 1}[r.kind]
		if refused < low-1e-9 || refused > high+1e-9 {
			t.Errorf("%v: %.2f of the checks are refused", r, refused)
		}
		if most := rule.Limit() / int64(2*r.nodes); r.kind == scarce && most > 1 {
			t.Errorf("%v: up to %d units are not urgent", r, most)
		}
	}
}
