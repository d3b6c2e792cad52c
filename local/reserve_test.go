package local

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestReserve(t *testing.T) {
	c := clock.NewManual(start)
	l := newLimiter(t, Options{Clock: c})
	r := limit.Must(limit.TokenBucket("f", 1, time.Second, 3))
	l.Take("k", r, 3)
	var made []limit.Reservation
	for _, step := range []struct {
		n     int64
		delay time.Duration
	}{{0, 0}, {1, 1}, {1, 2}, {3, 5}, {2, 7}} {
		v := l.ReserveN("k", r, step.n)
		if made = append(made, v); !v.OK() || v.Delay() != step.delay*time.Second || v.Result().Allowed != (step.delay == 0) {
			t.Fatalf("%d: %+v", step.n, v)
		}
	}
	if res := l.Take("k", r, 1); res.Allowed || res.RetryAfter != 8*time.Second || res.Remaining != 0 {
		t.Errorf("behind them: %+v", res)
	}
	copied := made[4]
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { copied.Cancel(bg) })
		all.Go(func() { made[4].Cancel(bg) })
	}
	all.Wait()
	if v := l.Reserve("k", r); v.Delay() != 6*time.Second {
		t.Errorf("after one was canceled: %+v", v)
	}
	for _, n := range []int64{4, math.MaxInt64, -1, math.MinInt64} {
		v := l.ReserveN("k", r, n)
		if v.Cancel(bg); v.OK() || v.Delay() != limit.Never {
			t.Errorf("%d: %+v", n, v)
		}
	}
	c.Advance(6 * time.Second)
	if res := l.Take("k", r, 1); res.Allowed || res.RetryAfter != time.Second {
		t.Errorf("when the last is due: %+v", res)
	}
	window := limit.Must(limit.FixedWindow("w", 10, time.Hour))
	l.Take("k", window, 5)
	held := l.ReserveN("k", window, 2)
	held.Cancel(bg)
	held.Cancel(bg)
	if left := l.Peek("k", window).Remaining; left != 5 {
		t.Errorf("%d remain of a window after a reservation was canceled twice", left)
	}
	if v := new(Limiter).Reserve("k", r); v.OK() {
		t.Error("a zero limiter reserves")
	}
	if v := l.Reserve("k", nil); v.OK() {
		t.Error("reserved without a rule")
	}
}

// Nobody can push a key out of reach: reservations end where time does.
func TestReserveIsBounded(t *testing.T) {
	c := clock.NewManual(start)
	l := newLimiter(t, Options{Clock: c})
	r := limit.Must(limit.TokenBucket("f", 1, 365*24*time.Hour, 10))
	var booked []limit.Reservation
	for range 1000 {
		if v := l.ReserveN("k", r, 10); v.OK() {
			booked = append(booked, v)
		}
	}
	if len(booked) < 10 || len(booked) > 11 {
		t.Errorf("%d times ten units of one a year, and 100 years, were booked", len(booked))
	}
	for _, v := range booked {
		v.Cancel(bg)
	}
	if l.Peek("k", r).Remaining != 10 {
		t.Errorf("%+v", l.Peek("k", r))
	}
}

func TestDryRun(t *testing.T) {
	forCallRules(t, func(t *testing.T, l *Limiter, _ *clock.Manual, r *limit.Rule) {
		d := r.DryRun()
		if res := l.Take("k", d, 8); !res.Allowed || res.WouldRefuse || res.Remaining != 2 {
			t.Errorf("what fits: %+v", res)
		}
		res := l.Take("k", d, 3)
		if want := l.Take("k", r, 3).RetryAfter; !res.Allowed || !res.WouldRefuse || res.Remaining != 2 || res.RetryAfter != want {
			t.Errorf("what does not: %+v, want %v", res, want)
		}
		if res := l.Take("k", d, 11); !res.Allowed || !res.WouldRefuse || res.RetryAfter != limit.Never {
			t.Errorf("what never does: %+v", res)
		}
		if granted, res := l.TakeAtMost("k", d, 5); granted != 5 || !res.WouldRefuse || res.Remaining != 2 {
			t.Errorf("at most: %d, %+v", granted, res)
		}
		if !l.AllowN("k", d, 3) || l.AllowN("k", r, 3) || !l.Allow("k", r) {
			t.Error("the same counter, another verdict")
		}
		l.Take("k", r, 1)
		if res := l.Peek("k", d); !res.Allowed || !res.WouldRefuse {
			t.Errorf("peek: %+v", res)
		}
		v := l.ReserveN("k", d, 3)
		if v.Cancel(bg); !v.OK() || v.Delay() != 0 || !v.Result().WouldRefuse || l.Peek("k", r).Remaining != 0 {
			t.Errorf("reserve: %+v", v)
		}
		v = l.ReserveN("other", d, 3)
		if v.Cancel(bg); !v.OK() || l.Peek("other", r).Remaining != 10 {
			t.Errorf("reserve what fits: %+v", v)
		}
		for _, n := range []int64{-1, math.MinInt64} {
			if res := l.Take("k", d, n); res.Allowed || l.AllowN("k", d, n) || l.ReserveN("k", d, n).OK() {
				t.Errorf("%d: %+v", n, res)
			}
		}
	})
}

// A nil limiter refuses, and does not panic.
func TestNilLimiter(t *testing.T) {
	var l *Limiter
	r := tenPerSecond()[0]
	if l.Allow("k", r) || l.Take("k", r, 1).Allowed || l.Peek("k", nil).Allowed || l.TakeAll(asking("k", r, 1)).Allowed || l.Reserve("k", r).OK() {
		t.Error("a nil limiter admits")
	}
	if granted, _ := l.TakeAtMost("k", r, 1); granted != 0 || l.Refund("k", r, 1) != 0 || l.Stats().Keys != 0 {
		t.Error("a nil limiter counts")
	}
	if err := l.Wait(bg, "k", r); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("wait: %v", err)
	}
	if err := l.Set("k", r, 1); !errors.Is(err, limit.ErrClosed) || !errors.Is(l.Reset("k", r), limit.ErrClosed) {
		t.Errorf("set: %v", err)
	}
	l.Close()
}

// The first of two is given up when it is due: as much of the queue as the second
// needs stays as it is, and the rest comes back at once.
func TestCancelWhenDue(t *testing.T) {
	for behind, room := range map[int64]int64{100: 0, 60: 0, 30: 40, 1: 98} {
		c := clock.NewManual(start)
		l := newLimiter(t, Options{Clock: c})
		r := limit.Must(limit.TokenBucket("f", 100, 100*time.Second, 100))
		l.AllowN("k", r, 100)
		first, second := l.ReserveN("k", r, 100), l.ReserveN("k", r, behind)
		c.Advance(first.Delay())
		first.Cancel(bg)
		if got := l.Peek("k", r).Remaining; got != room {
			t.Errorf("%d units behind: %d remain, want %d", behind, got, room)
		}
		c.Advance(second.Delay() - first.Delay())
		if got := l.Peek("k", r).Remaining; got != 100-behind {
			t.Errorf("%d units behind, when they are due: %d remain, want %d", behind, got, 100-behind)
		}
	}
}

// Those who waited when a key was reset keep no units from being refunded.
func TestCancelAfterReset(t *testing.T) {
	l, r := newLimiter(t, Options{Clock: clock.NewManual(start)}), limit.Must(limit.TokenBucket("f", 1, time.Second, 10))
	for range 3 {
		l.ReserveN("k", r, 10)
	}
	if err := l.Reset("k", r); err != nil {
		t.Fatal(err)
	}
	if l.AllowN("k", r, 10); l.Refund("k", r, 4) != 4 {
		t.Error("reservations from before a reset keep units from being refunded")
	}
}
