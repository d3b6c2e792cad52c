package local

import (
	"fmt"
	"sync"
	"sync/atomic"
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

// Each user may do each action so often per period.
func TestSeedRow1ActionPerUser(t *testing.T) {
	c := clock.NewManual(start)
	l := newLimiter(t, Options{Clock: c})
	isActionAllowed := func(user, action string, period time.Duration, maxCount int64) bool {
		return l.Allow(user, limit.Must(limit.SlidingLog(action, maxCount, period)))
	}
	for i := range 20 {
		if got := isActionAllowed("ann", "reply", time.Minute, 5); got != (i < 5) {
			t.Errorf("reply %d: %v", i+1, got)
		}
	}
	for _, other := range [][2]string{{"bob", "reply"}, {"ann", "post"}, {"annr", "eply"}, {"annreply", " "}} {
		if !isActionAllowed(other[0], other[1], time.Minute, 5) {
			t.Errorf("%q was counted with ann's replies", other)
		}
	}
	c.Advance(time.Minute)
	if !isActionAllowed("ann", "reply", time.Minute, 5) {
		t.Error("still refused a minute later: refusals must cost nothing")
	}
}

func TestSeedRow1TwentyCallsAtOnce(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.SlidingLog("log", 5, time.Minute)),
		limit.Must(limit.SlidingWindow("window", 5, time.Minute)),
		limit.Must(limit.FixedWindow("fixed", 5, time.Minute)),
		limit.Must(limit.Funnel("funnel", 5, 5, time.Minute)),
	} {
		c := clock.NewManual(start)
		if got, want := calls(newLimiter(t, Options{Clock: c}), c, rule, 20, 0), "xxxxx---------------"; got != want {
			t.Errorf("%v: %s, want %s", rule, got, want)
		}
	}
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

// A leaky bucket on one node: capacity, leak, what is left; fractions are kept and
// long idleness overflows nothing.
func TestSeedRow4Funnel(t *testing.T) {
	c := clock.NewManual(start)
	l := newLimiter(t, Options{Clock: c})
	rule := limit.Must(limit.Funnel("funnel", 10, 1, 3*time.Second))
	if got, want := calls(l, c, rule, 20, 0), "xxxxxxxxxx----------"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	// Asked every 100 ms, a unit has leaked after 30 calls: truncating each
	// time to whole units would never leak any.
	admitted := 0
	for range 300 {
		c.Advance(100 * time.Millisecond)
		if l.Allow("k", rule) {
			admitted++
		}
	}
	if admitted != 10 {
		t.Errorf("%d units in 30 s, want 10", admitted)
	}
	if res := l.Peek("k", rule); res.Remaining != 0 || res.RetryAfter != 3*time.Second {
		t.Errorf("%+v", res)
	}
	c.Advance(99 * 365 * 24 * time.Hour)
	if res := l.Take("k", rule, 10); !res.Allowed || res.ResetAfter != 30*time.Second {
		t.Errorf("after 99 years: %+v", res)
	}
}

// CL.THROTTLE laoqian:reply 15 30 60, whose capacity is 15 + 1.
func TestSeedRow6Throttle(t *testing.T) {
	c := clock.NewManual(start)
	l := newLimiter(t, Options{Clock: c})
	rule := limit.Must(limit.Funnel("reply", 16, 30, time.Minute))
	for k := int64(1); k <= 16; k++ {
		want := limit.Result{Allowed: true, Limit: 16, Remaining: 16 - k, ResetAfter: time.Duration(2*k) * time.Second}
		if got := l.Take("laoqian", rule, 1); got != want {
			t.Errorf("call %d: %+v, want %+v", k, got, want)
		}
	}
	c.Advance(time.Second) // as in the transcript, which took its time
	want := limit.Result{Limit: 16, RetryAfter: time.Second, ResetAfter: 31 * time.Second}
	if got := l.Take("laoqian", rule, 1); got != want {
		t.Errorf("call 17: %+v, want %+v", got, want)
	}
	c.Advance(want.RetryAfter)
	if !l.Allow("laoqian", rule) {
		t.Error("refused after waiting as told")
	}
}

// A counter per window: no unit is lost to a race between reading and adding,
// and twice the limit around a boundary is inherent.
func TestSeedRow7FixedWindow(t *testing.T) {
	c := clock.NewManual(start) // a whole minute
	l := newLimiter(t, Options{Clock: c})
	rule := limit.Must(limit.FixedWindow("fixed", 100, time.Minute))
	burst := func() int64 {
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					if l.Allow("k", rule) {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		return admitted.Load()
	}
	c.Advance(59 * time.Second)
	if got := burst(); got != 100 {
		t.Errorf("at 59 s: %d, want 100", got)
	}
	if got := l.Peek("k", rule).RetryAfter; got != time.Second {
		t.Errorf("RetryAfter %v, want 1s", got)
	}
	c.Advance(time.Second)
	if got := burst(); got != 100 {
		t.Errorf("at 60 s: %d, want 100", got)
	}
}

// One minute as 60 windows of a second.
func TestSeedRow8SubWindows(t *testing.T) {
	c := clock.NewManual(start)
	l := newLimiter(t, Options{Clock: c})
	rule := limit.Must(limit.SlidingWindowBuckets("sub", 60, time.Minute, 60))
	c.Advance(59 * time.Second)
	admitted := 0
	count := func(seconds int) int {
		admitted = 0
		for range seconds * 20 {
			if l.Allow("k", rule) {
				admitted++
			}
			c.Advance(50 * time.Millisecond)
		}
		return admitted
	}
	if got := count(1); got != 20 {
		t.Errorf("first second: %d, want 20", got)
	}
	// 40 more before the first ones leave: no double burst at the minute.
	if got := count(59); got != 40 {
		t.Errorf("rest of the minute: %d, want 40", got)
	}
	// From 60 s after the first on they leave: one bucket's share of the limit, which is
	// one, and the others when the last of them is a minute old.
	if got := count(1); got != 2 {
		t.Errorf("as the first second leaves: %d, want 2", got)
	}
	if got := count(1); got != 20 {
		t.Errorf("after the first second has left: %d, want all 20", got)
	}
}

// Current window plus weighted previous one. Adding both in full would halve
// the limit; forgetting the previous one would double it.
func TestSeedRow9TwoWindows(t *testing.T) {
	c := clock.NewManual(start)
	l := newLimiter(t, Options{Clock: c})
	rule := limit.Must(limit.SlidingWindowBuckets("two", 100, time.Minute, 1))
	c.Advance(time.Millisecond)
	for i := range 100 { // evenly, the last just before the end
		if i > 0 {
			c.Advance(605 * time.Millisecond)
		}
		if !l.Allow("k", rule) || i == 99 && l.Allow("k", rule) {
			t.Fatal("want exactly 100 in the first window")
		}
	}
	c.Advance(time.Minute - 99*605*time.Millisecond - time.Millisecond)
	if l.Allow("k", rule) {
		t.Error("the previous window was forgotten at the boundary")
	}
	c.Advance(15 * time.Second) // three quarters of the previous one count
	if got := l.Peek("k", rule).Remaining; got != 25 {
		t.Errorf("after a quarter: %d remaining, want 25", got)
	}
	c.Advance(15 * time.Second)
	if got := l.Peek("k", rule).Remaining; got != 50 {
		t.Errorf("after half: %d remaining, want 50", got)
	}
	// A steady load of the limit passes nearly whole.
	admitted := 0
	for range 100 * 30 {
		if l.Allow("steady", rule) {
			admitted++
		}
		c.Advance(600 * time.Millisecond)
	}
	if admitted < 2900 || admitted > 3000 {
		t.Errorf("steady load: %d of 3000", admitted)
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

func TestSeedConcurrentLimitIsExact(t *testing.T) {
	l := newLimiter(t, Options{Clock: clock.NewManual(start)})
	for _, rule := range everyRule(t, 10) {
		for i := range 5 {
			key := fmt.Sprint(i)
			if got := admit(l, key, rule, 16, 100); got != 10 {
				t.Errorf("%v: %d", rule, got)
			}
		}
	}
}

// admit asks for one unit of key calls times from each of some goroutines and returns how
// many were admitted.
func admit(l *Limiter, key string, rule *limit.Rule, goroutines, calls int) int64 {
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range calls {
				if l.Allow(key, rule) {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return admitted.Load()
}
