package redisrate

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// alone returns a limiter without Redis.
func alone(tb testing.TB) *Limiter {
	tb.Helper()
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	l := From(lim)
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// Ten at once, and one more every six seconds: no sliding window, which would admit none for a minute.
func TestTokenBucket(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		tenAMinute, six := PerMinute(10), 6*time.Second
		for i := 1; i <= 10; i++ {
			res, err := p.Allow(t.Context(), "k", tenAMinute)
			if err != nil {
				t.Fatal(err)
			}
			want(t, "within the burst", *res, Result{tenAMinute, 1, 10 - i, -1, time.Duration(i) * six})
		}
		want(t, "after the burst", take(t, p.Limiter, "k", tenAMinute, 1), Result{tenAMinute, 0, 0, six, 10 * six})
		p.pass(six - time.Microsecond)
		want(t, "too early", take(t, p.Limiter, "k", tenAMinute, 1), Result{tenAMinute, 0, 0, time.Microsecond, 9*six + time.Microsecond})
		p.pass(time.Microsecond)
		want(t, "the next", take(t, p.Limiter, "k", tenAMinute, 1), Result{tenAMinute, 1, 0, -1, 10 * six})
		p.pass(time.Minute)
		want(t, "full again", take(t, p.Limiter, "k", tenAMinute, 10), Result{tenAMinute, 10, 0, -1, 10 * six})
		want(t, "another key", take(t, p.Limiter, "other", tenAMinute, 1), Result{tenAMinute, 1, 9, -1, six})
	})
}

// What asks for several requests, for none, for more than there are and for more than there can be.
func TestSeveral(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		l, six, k := PerMinute(10), 6*time.Second, "k"
		want(t, "none of a full bucket", take(t, p.Limiter, k, l, 0), Result{l, 0, 10, -1, 0})
		want(t, "at most none of it", most(t, p.Limiter, k, l, 0), Result{l, 0, 10, -1, 0})
		want(t, "seven", take(t, p.Limiter, k, l, 7), Result{l, 7, 3, -1, 7 * six})
		want(t, "four of three", take(t, p.Limiter, k, l, 4), Result{l, 0, 0, six, 7 * six})
		want(t, "more than there can be", take(t, p.Limiter, k, l, 12), Result{l, 0, 0, 9 * six, 7 * six})
		want(t, "a refusal takes none", take(t, p.Limiter, k, l, 0), Result{l, 0, 3, -1, 7 * six})
		want(t, "at most two", most(t, p.Limiter, k, l, 2), Result{l, 2, 1, -1, 9 * six})
		want(t, "at most five of one", most(t, p.Limiter, k, l, 5), Result{l, 1, 0, -1, 10 * six})
		want(t, "at most five of none", most(t, p.Limiter, k, l, 5), Result{l, 0, 0, six, 10 * six})
		want(t, "at most none of none", most(t, p.Limiter, k, l, 0), Result{l, 0, 0, six, 10 * six})
		want(t, "none of none", take(t, p.Limiter, k, l, 0), Result{l, 0, 0, -1, 10 * six})
		want(t, "at most more than there can be", most(t, p.Limiter, "other", l, 50), Result{l, 10, 0, -1, 10 * six})
		if res := take(t, p.Limiter, k, l, math.MaxInt); res.Allowed != 0 || res.RetryAfter < time.Hour {
			t.Errorf("as many as an int holds: %+v", res)
		}
		if res := most(t, p.Limiter, "third", l, math.MaxInt); res.Allowed != 10 {
			t.Errorf("at most as many as an int holds: %+v", res)
		}
	})
}

// Another burst goes on with what was used; another rate is another counter, and both limit.
func TestChange(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		small, large, faster := PerMinute(10), Limit{10, 20, time.Minute}, PerMinute(60)
		take(t, p.Limiter, "k", small, 10)
		if res := take(t, p.Limiter, "k", large, 1); res.Allowed != 1 || res.Remaining != 9 {
			t.Errorf("a larger burst: %+v", res)
		}
		if res := take(t, p.Limiter, "k", small, 1); res.Allowed != 0 || res.ResetAfter != 66*time.Second {
			t.Errorf("back to the smaller one: %+v", res)
		}
		if res := most(t, p.Limiter, "k", faster, 100); res.Allowed != 60 {
			t.Errorf("another rate: %+v", res)
		}
		for range 20 { // used in turns, neither forgets
			if a, b := take(t, p.Limiter, "k", small, 1), take(t, p.Limiter, "k", faster, 1); a.Allowed != 0 || b.Allowed != 0 {
				t.Errorf("%+v, %+v", a, b)
			}
		}
	})
}

// All nodes forget a key under all its limits, and no other key.
func TestReset(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	one, two := From(h.Limiters[0]), From(h.Limiters[1])
	limits := []Limit{PerMinute(10), {10, 4, time.Minute}, PerHour(3)}
	for _, key := range []string{"k", "other"} {
		take(t, one, key, PerMinute(10), 10)
		take(t, one, key, PerHour(3), 3)
		for _, l := range limits { // the other node knows the limits, and by Sync of the units
			take(t, two, key, l, 0)
			most(t, two, key, l, 1)
		}
	}
	h.Sync()
	for _, l := range limits {
		if res := take(t, two, "k", l, 1); res.Allowed != 0 {
			t.Fatalf("%v: %+v", l, res)
		}
	}
	if err := two.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	h.Sync()
	for i, l := range []*Limiter{two, one} {
		if a, b := take(t, l, "k", PerMinute(10), 0), take(t, l, "k", PerHour(3), 0); a.Remaining != 10 || b.Remaining != 3 {
			t.Errorf("%d: %+v, %+v", i, a, b)
		}
		if a, b := take(t, l, "other", PerMinute(10), 1), take(t, l, "other", PerHour(3), 1); a.Allowed != 0 || b.Allowed != 0 {
			t.Errorf("%d: the other key: %+v, %+v", i, a, b)
		}
	}
}

// A limiter that has seen no limit cannot forget anything, and says so.
func TestResetWithoutLimits(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		if err := p.Reset(t.Context(), "k"); err == nil {
			t.Error("nothing was forgotten, without an error")
		}
		take(t, p.Limiter, "k", PerMinute(10), 0)
		if err := p.Reset(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	})
}

// A key that Redis cannot use under one limit is forgotten under the others.
func TestResetOfAnUnusableKey(t *testing.T) {
	lim, server := inRedis(t)
	l := From(lim)
	for _, per := range []Limit{PerMinute(10), PerHour(10), PerSecond(10)} {
		take(t, l, "k", per, 10)
	}
	keys := server.Keys()
	if len(keys) != 3 {
		t.Fatalf("%q", keys)
	}
	server.Del(keys[1])
	if _, err := server.Lpush(keys[1], "of another program"); err != nil {
		t.Fatal(err)
	}
	err := l.Reset(t.Context(), "k")
	if unusable := new(limit.KeyError); !errors.As(err, &unusable) {
		t.Fatal(err)
	}
	full := 0
	for _, per := range []Limit{PerMinute(10), PerHour(10), PerSecond(10)} {
		if res, err := l.AllowN(t.Context(), "k", per, 0); err == nil && res.Remaining == 10 {
			full++
		}
	}
	if full != 2 {
		t.Errorf("%d of the other two are forgotten", full)
	}
}

// An outage of Redis: memory goes on deciding, and what asks Redis fails.
func TestOutage(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	l := From(h.Limiter)
	h.CutOff()
	if n := most(t, l, "k", PerMinute(10), 50).Allowed; n != 10 {
		t.Errorf("%d of 10", n)
	}
	if res := take(t, l, "k", PerMinute(10), 1); res.Allowed != 0 || res.RetryAfter != 6*time.Second {
		t.Errorf("%+v", res)
	}
	if err := l.Reset(t.Context(), "k"); !errors.As(err, new(*hybrid.UnavailableError)) {
		t.Errorf("reset: %v", err)
	}
	h.Heal()

	lim, server := inRedis(t)
	asks := From(lim)
	take(t, asks, "k", PerMinute(10), 1)
	server.SetError("LOADING away")
	if res, err := asks.Allow(t.Context(), "k", PerMinute(10)); err == nil || res != nil {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := asks.AllowAtMost(t.Context(), "k", PerMinute(10), 3); err == nil || res != nil {
		t.Errorf("at most: %+v, %v", res, err)
	}
	if err := asks.Reset(t.Context(), "k"); err == nil {
		t.Error("reset: no error")
	}
}

// With FailClosed a refusal is one in these conventions, too.
func TestFailClosed(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiter: hybrid.Options{Fallback: hybrid.FailClosed}})
	l := From(h.Limiter)
	h.CutOff()
	if res := take(t, l, "k", PerMinute(10), 1); res.Allowed != 0 || res.Remaining != 0 || res.RetryAfter <= 0 {
		t.Errorf("%+v", res)
	}
}

// Many goroutines admit as much as one, by one limiter and its copies, while limits come and go.
func TestConcurrent(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		var admitted atomic.Int64
		var all sync.WaitGroup
		copied := *p.Limiter
		for g := range 8 {
			all.Go(func() {
				l := p.Limiter
				if g%2 == 0 {
					l = &copied
				}
				for i := range 50 {
					if res, err := l.Allow(t.Context(), "k", PerHour(100)); err != nil {
						t.Error(err)
					} else {
						admitted.Add(int64(res.Allowed))
					}
					if _, err := l.Allow(t.Context(), "k", Limit{1 + i, 1, time.Hour}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := admitted.Load(); n != 100 {
			t.Errorf("%d of 100", n)
		}
	})
}

// What was made by no constructor, or of nothing, says so in each call and admits nothing.
func TestUnusable(t *testing.T) {
	for name, l := range map[string]*Limiter{
		"nil": nil, "zero": {}, "no hybrid limiter": From((*hybrid.Limiter)(nil)), "no remote limiter": From((*remote.Limiter)(nil)),
		"zero hybrid limiter": From(new(hybrid.Limiter)),
	} {
		refusesAll(t, name, l)
	}
}

func refusesAll(t *testing.T, name string, l *Limiter) {
	t.Helper()
	for what, call := range map[string]func() (*Result, error){
		"Allow":         func() (*Result, error) { return l.Allow(t.Context(), "k", PerMinute(10)) },
		"AllowN":        func() (*Result, error) { return l.AllowN(t.Context(), "k", PerMinute(10), 2) },
		"AllowN 0":      func() (*Result, error) { return l.AllowN(t.Context(), "k", PerMinute(10), 0) },
		"AllowAtMost":   func() (*Result, error) { return l.AllowAtMost(t.Context(), "k", PerMinute(10), 2) },
		"AllowAtMost 0": func() (*Result, error) { return l.AllowAtMost(t.Context(), "k", PerMinute(10), 0) },
		"Reset":         func() (*Result, error) { return nil, l.Reset(t.Context(), "k") },
	} {
		if res, err := call(); err == nil || res != nil {
			t.Errorf("%s: %s: %+v, %v", name, what, res, err)
		}
	}
	_ = l.Close()
}

// A closed limiter still answers, and is closed once.
func TestClose(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	l := From(h.Limiters[0])
	take(t, l, "k", PerMinute(10), 4)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	h.Sync()
	rule, err := PerMinute(10).rule()
	if err != nil {
		t.Fatal(err)
	}
	h.Preload([]string{"k"}, rule)
	if n := take(t, From(h.Limiters[1]), "k", PerMinute(10), 0).Remaining; n != 6 {
		t.Errorf("%d are left for the other node, want 6", n)
	}
	if n := take(t, l, "k", PerMinute(10), 1).Allowed; n != 1 {
		t.Error("a closed limiter refuses")
	}
	if err := l.Close(); err != nil {
		t.Errorf("again: %v", err)
	}
	if h.Limiters[0].State().Mode != hybrid.Closed {
		t.Error(h.Limiters[0].State())
	}
	lim, _ := inRedis(t)
	if err := From(lim).Close(); err != nil {
		t.Errorf("remote: %v", err)
	}
}
