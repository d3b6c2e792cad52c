package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/bench/internal/capacity"
	"github.com/hybridlimit/hybridlimit/bench/internal/fleet"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A line says by check what has added up, and by second what an idle limiter goes on using.
func TestLine(t *testing.T) {
	ours, nobody := limiters[1], limiters[0]
	stats := hybrid.Stats{Batches: 10, KeysSynced: 500, Heartbeats: 2, Failures: 1}
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

// Each limiter is measured where a row says something of it, each row beside nothing.
func TestDoes(t *testing.T) {
	for _, c := range []struct {
		r    row
		want string
	}{
		{row{1000, 200, 1, far}, "nothing hybrid hybrid-window redis_rate memorystore"},
		{row{50000, 20000, 1, far}, "nothing hybrid hybrid-window memorystore"},
		{row{5000, 2000, 4, at}, "nothing hybrid hybrid-window hybrid-exact remote redis_rate"},
		{row{1000, 200, 4, spent}, "nothing hybrid hybrid-exact remote redis_rate"},
		{row{0, 20000, 1, idle}, "nothing hybrid"},
		{row{0, 65536, 1, flatOut}, "hybrid hybrid-window memorystore"},
	} {
		var names []string
		for _, l := range limiters {
			if l.does(c.r) {
				names = append(names, l.name)
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%v: %s, want %s", c.r, got, c.want)
		}
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
			allowed += min(rate, float64(rule.Units())/rule.Period().Seconds())
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

// The load keeps its pace, and each check is timed.
func TestLoad(t *testing.T) {
	r := row{2000, 10, 2, far}
	var asked []int
	s := fleet.Of(r.nodes, func() func(string) bool {
		i := len(asked)
		asked = append(asked, 0)
		return func(string) bool { asked[i]++; return i == 0 }
	}, nil)
	l := newLoad(r)
	n := l.run(s, 100*time.Millisecond, true)
	if made := asked[0] + asked[1]; n != made || n != len(l.took) || n < 20 || n > 200 {
		t.Errorf("%d checks counted, %d made, %d timed, in 0.1 s at 2,000 a second", n, made, len(l.took))
	}
	if asked[0]-asked[1] > 1 || asked[1] > asked[0] || l.refused != asked[1] {
		t.Errorf("two nodes were asked %v times, %d refusals counted", asked, l.refused)
	}
}
