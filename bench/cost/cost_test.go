package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMedian(t *testing.T) {
	list := []sample{{checks: 5}, {checks: 1}, {checks: 9}}
	checks := func(s sample) float64 { return float64(s.checks) }
	if got := median(list, checks); got != 5 {
		t.Errorf("the median of 5, 1 and 9 is %v", got)
	}
	if got := median(nil, checks); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestPercentile(t *testing.T) {
	var took []time.Duration
	for i := range 1000 {
		took = append(took, time.Duration(1000-i))
	}
	for permille, want := range map[int]time.Duration{0: 1, 500: 501, 999: 1000} {
		if got := percentile(took, permille); got != want {
			t.Errorf("%d of 1,000 took %v at the most, want %v", permille, got, want)
		}
	}
}

// What the load itself costs comes off, and what remains is compared with redis_rate.
func TestTable(t *testing.T) {
	one := func(client, redis time.Duration) []sample {
		return []sample{{checks: 1000, wall: time.Second, client: client, redis: redis}}
	}
	var out strings.Builder
	table(&out, row{1000, 200, 1, far}, map[string][]sample{
		"nothing": one(10*time.Millisecond, 0), "hybrid": one(13*time.Millisecond, 2*time.Millisecond), "redis_rate": one(90*time.Millisecond, 20*time.Millisecond),
	})
	for _, want := range []string{"| hybrid | 3.00 | 2.00 | 0.050 |", "| redis_rate | 80.00 | 20.00 | 1.000 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// The load keeps its pace, and each check is timed.
func TestLoad(t *testing.T) {
	r := row{2000, 10, 2, far}
	asked := 0
	s := each(r, func() func(string) bool { return func(string) bool { asked++; return true } }, func() {})
	l := newLoad(r)
	n := l.run(s, 100*time.Millisecond, true)
	if n != asked || n != len(l.took) || n < 20 || n > 200 {
		t.Errorf("%d checks counted, %d made, %d timed, in 0.1 s at 2,000 a second", n, asked, len(l.took))
	}
}
