package local

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The systems that are usually built first, as they should behave.

// calls asks n times, every so often, and returns which calls were admitted.
func calls(l *Limiter, c *clock.Manual, rule *limit.Rule, n int, every time.Duration) string {
	pattern := make([]byte, n)
	for i := range pattern {
		pattern[i] = '-'
		if l.Allow("k", rule) {
			pattern[i] = 'x'
		}
		c.Advance(every)
	}
	return string(pattern)
}

func TestSeedRow2SlidingLogTimelines(t *testing.T) {
	rule := limit.Must(limit.SlidingLog("log", 3, 30*time.Second))
	for _, line := range []struct {
		every time.Duration
		want  string
	}{
		// Call 7, at 30 s, finds the first one exactly one window old: gone.
		{5 * time.Second, "xxx---xxx-"},
		{3 * time.Second, "xxx-------xxx-------xxx-------xxx-------xxx-------"},
	} {
		c := clock.NewManual(start)
		if got := calls(newLimiter(t, Options{Clock: c}), c, rule, len(line.want), line.every); got != line.want {
			t.Errorf("every %v: %s, want %s", line.every, got, line.want)
		}
	}
}

// Named uses, with a load of three times the limit over five windows.
func TestSeedScenarios(t *testing.T) {
	for _, s := range []struct {
		name string
		rule *limit.Rule
	}{
		{"login", limit.Must(limit.SlidingWindow("login", 100, time.Minute))},
		{"login of many", limit.Must(limit.SlidingWindow("login", 1000, time.Minute))},
		{"static pages", limit.Must(limit.FixedWindow("static", 5000, 10*time.Minute))},
		{"flash sale", limit.Must(limit.SlidingWindow("sale", 10_000, 10*time.Second))},
	} {
		t.Run(s.name, func(t *testing.T) {
			c := clock.NewManual(start)
			l := newLimiter(t, Options{Clock: c})
			step := s.rule.Period() / time.Duration(3*s.rule.Limit())
			var at []time.Duration
			for c.Now() < time.Duration(start.UnixNano())+5*s.rule.Period() {
				if l.Allow("k", s.rule) {
					at = append(at, c.Now())
				}
				c.Advance(step)
			}
			if lim := int(s.rule.Limit()); len(at) < lim*9/2 || len(at) > lim*11/2 {
				t.Errorf("%d admitted in five windows of %d", len(at), lim)
			}
			if s.rule.Algorithm() == limit.AlgorithmFixedWindow {
				return // up to twice the limit around a boundary
			}
			// Weighting can miss at most what one bucket holds unevenly.
			lim := int(s.rule.Limit())
			for i := lim + lim/3; i < len(at); i++ {
				if d := at[i] - at[i-lim-lim/3]; d < s.rule.Period() {
					t.Fatalf("%d units within %v", lim+lim/3+1, d)
				}
			}
		})
	}
}
