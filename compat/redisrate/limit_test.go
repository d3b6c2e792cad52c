package redisrate

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Limits of one rate share a counter, and those of different rates do not.
func TestNamesOfRules(t *testing.T) {
	names := map[string]Limit{}
	for _, l := range []Limit{
		PerSecond(1), PerSecond(10), PerMinute(1), PerMinute(10), PerHour(1),
		{1, 1, 10 * time.Second}, {1, 1, time.Second + 1}, {11, 1, time.Second}, {1, 1, 1}, {1, 1, time.Millisecond},
	} {
		rule, err := l.rule()
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := names[rule.Name()]; taken {
			t.Errorf("%v and %v are both named %q", l, other, rule.Name())
		}
		names[rule.Name()] = l
		l.Burst = 99
		if larger, err := l.rule(); err != nil || larger.Name() != rule.Name() {
			t.Errorf("%v, %v; another burst, and the name was %q", larger, err, rule.Name())
		}
	}
}

var wrong = []Limit{
	{},
	{Burst: 3, Period: time.Minute},
	{Rate: -1, Burst: 3, Period: time.Minute},
	{Rate: 3, Burst: -1, Period: time.Minute},
	{Rate: 3, Burst: 3},
	{Rate: 3, Burst: 3, Period: -time.Minute},
	{Rate: math.MinInt, Burst: math.MinInt, Period: math.MinInt64},
	{Rate: 1, Burst: 1, Period: math.MaxInt64},
	{Rate: 1, Burst: 1 << 30, Period: 24 * time.Hour}, // would take a million years to fill
	PerMinute(0), PerSecond(-5),
}

// A limit that is none admits nothing, and says what is wrong with it.
func TestWrongLimits(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		for _, l := range wrong {
			for _, n := range []int{0, 1, 5} {
				if res, err := p.AllowN(t.Context(), "k", l, n); err == nil || res != nil {
					t.Errorf("%v: %+v, %v", l, res, err)
				}
				if res, err := p.AllowAtMost(t.Context(), "k", l, n); err == nil || res != nil {
					t.Errorf("at most, %v: %+v, %v", l, res, err)
				}
			}
			if res, err := p.Allow(t.Context(), "k", l); err == nil || res != nil {
				t.Errorf("%v: %+v, %v", l, res, err)
			}
		}
		if n := len(p.rules.of); n != 0 {
			t.Errorf("%d wrong limits are kept", n)
		}
	})
}

// FuzzLimit gives any numbers to a limiter. It never panics, and never admits more than was asked for or than
// the bucket holds.
func FuzzLimit(f *testing.F) {
	for _, l := range wrong {
		f.Add(l.Rate, l.Burst, int64(l.Period), 1, "k")
	}
	f.Add(10, 10, int64(time.Minute), 3, "")
	f.Add(math.MaxInt, math.MaxInt, int64(math.MaxInt64), math.MaxInt, "k")
	f.Add(1, 0, int64(1), math.MaxInt, "\xff\x00")
	f.Add(1, 1, int64(arith.MaxWindow), math.MaxInt, "k")
	lim := alone(f)
	f.Fuzz(func(t *testing.T, rate, burst int, period int64, n int, key string) {
		l := Limit{Rate: rate, Burst: burst, Period: time.Duration(period)}
		valid := n >= 0 && rate > 0 && burst >= 0 && period > 0
		for _, call := range []func() (*Result, error){
			func() (*Result, error) { return lim.AllowN(t.Context(), key, l, n) },
			func() (*Result, error) { return lim.AllowAtMost(t.Context(), key, l, n) },
		} {
			res, err := call()
			switch {
			case err != nil && res != nil || err == nil && !valid:
				t.Fatalf("%v, %d: %+v, %v", l, n, res, err)
			case err != nil:
			case res.Allowed < 0 || res.Allowed > min(n, burst) || res.Remaining < 0 || res.Allowed+res.Remaining > burst ||
				res.ResetAfter < 0 || res.RetryAfter < -1 || res.RetryAfter == 0 || res.Limit != l:
				t.Fatalf("%v, %d: %+v", l, n, res)
			}
		}
	})
}
