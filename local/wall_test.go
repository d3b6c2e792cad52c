package local_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// wallClock is monotonic like the system's, beside a wall clock that can be set.
type wallClock struct {
	*clock.Manual
	ahead atomic.Int64
}

func (c *wallClock) Ahead() time.Duration { return time.Duration(c.ahead.Load()) }

// jump sets the wall clock alone, as an operator does, or as it looks after the machine was suspended, and
// waits for as long as that may remain unseen.
func (c *wallClock) jump(d time.Duration) {
	c.ahead.Add(int64(d))
	time.Sleep(1100 * time.Millisecond) // of the bubble
	synctest.Wait()
}

// atHour returns a limiter that begins when its clocks show this hour.
func atHour(t *testing.T, hour int) (*local.Limiter, *wallClock) {
	c := &wallClock{Manual: clock.NewManual(time.Date(2026, 3, 10, hour, 0, 0, 0, time.UTC))}
	l, err := local.New(local.Options{Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, c
}

// A day begins at midnight by the wall clock, also by one that was set after the start, or went on while the
// machine was suspended. Keys with a lease, whether it admits or refuses, are no exception.
//
// Fault 35: the wall clock is set, or the machine was suspended.
func TestQuotaFollowsTheWallClock(t *testing.T) {
	daily := limit.Must(limit.Quota("daily", 10, limit.Calendar{Unit: limit.Day}))
	took := func(l *local.Limiter) (n int) {
		for range 12 {
			if l.Allow("k", daily) {
				n++
			}
		}
		return n
	}
	want := func(t *testing.T, what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	for name, f := range map[string]func(t *testing.T){
		"ahead over midnight": func(t *testing.T) {
			l, c := atHour(t, 10)
			want(t, "first day", took(l), 10)
			c.jump(14*time.Hour - time.Second)
			want(t, "a second before midnight", took(l), 0)
			want(t, "left", l.Peek("k", daily).RetryAfter, time.Second)
			c.jump(time.Second)
			want(t, "second day", took(l), 10)
			want(t, "new key, left", l.Take("new", daily, 11).ResetAfter, time.Duration(0))
			l.Allow("new", daily)
			want(t, "a new key, left", l.Peek("new", daily).ResetAfter, 24*time.Hour)
		},
		"back, so that midnight is later": func(t *testing.T) {
			l, c := atHour(t, 23)
			want(t, "first day", took(l), 10)
			c.jump(-3 * time.Hour)
			c.Advance(time.Hour) // midnight, by the clock as it was at the start
			want(t, "at nine in the evening", took(l), 0)
			want(t, "left", l.Peek("k", daily).RetryAfter, 3*time.Hour)
			c.Advance(3 * time.Hour)
			want(t, "second day", took(l), 10)
		},
		"back over midnight": func(t *testing.T) {
			l, c := atHour(t, 23)
			want(t, "first day", took(l), 10)
			c.Advance(2 * time.Hour)
			l.AllowN("k", daily, 4)
			c.jump(-2 * time.Hour)
			want(t, "the first day again", took(l), 6)
			c.Advance(time.Hour)
			want(t, "second day", took(l), 10)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
}

// Nobody frees another limit by setting a clock.
//
// Fault 35: the wall clock is set.
func TestOtherLimitsCountElapsedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := atHour(t, 10)
		for _, rule := range []*limit.Rule{
			limit.Must(limit.TokenBucket("bucket", 10, time.Hour, 10)),
			limit.Must(limit.SlidingWindow("sliding", 10, time.Hour)),
			limit.Must(limit.FixedWindow("fixed", 10, time.Hour)),
			limit.Must(limit.SlidingLog("log", 10, time.Hour)),
		} {
			if !l.AllowN("k", rule, 10) {
				t.Fatal(rule)
			}
			before := l.Peek("k", rule)
			for _, d := range []time.Duration{5 * time.Hour, -30 * time.Hour} {
				c.jump(d)
				if got := l.Peek("k", rule); got != before || l.Allow("k", rule) {
					t.Errorf("%v: %+v after %v, want %+v", rule, got, d, before)
				}
			}
		}
	})
}
