package xrate_test

import (
	"math"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/compat/xrate"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// fleet returns a Limiter in each of so many processes, which all know the key: a process that has not seen it
// decides by itself until Redis has answered.
func fleet(t *testing.T, n int, r rate.Limit, burst int) (*hybridtest.Harness, []*xrate.Limiter) {
	t.Helper()
	h := hybridtest.New(t, hybridtest.Options{Limiters: n})
	var all []*xrate.Limiter
	for _, lim := range h.Limiters {
		all = append(all, over(t, lim, r, burst, h.Clock))
	}
	rule := limit.Must(limit.TokenBucket("upstream", int64(r), time.Second, int64(burst)))
	h.Preload([]string{"k"}, rule)
	return h, all
}

// Two processes take from one bucket, and so does who asks the limiter below.
func TestShared(t *testing.T) {
	h, l := fleet(t, 2, 10, 20)
	if got := admitted(l[0], 15); got != 15 {
		t.Fatalf("%d are admitted", got)
	}
	h.Sync()
	if got := l[1].Tokens(); got != 5 {
		t.Errorf("%v tokens in the other process", got)
	}
	rule := limit.Must(limit.TokenBucket("upstream", 10, time.Second, 20))
	if got := h.Limiters[1].Peek("k", rule).Remaining; got != 5 {
		t.Errorf("%v units below", got)
	}
	if got := h.Limiters[1].Stats().Conflicts; got != 0 {
		t.Errorf("the rule counts otherwise than one that a person has written: %d conflicts", got)
	}
	if got := admitted(l[1], 20); got != 5 {
		t.Errorf("%d are admitted by the other process", got)
	}
	h.Sync()
	if r := l[0].Reserve(); !r.OK() || (r.Delay()-100*time.Millisecond).Abs() > time.Microsecond {
		t.Errorf("reserved for %v", r.Delay())
	}
	// Another key and another name are other buckets.
	for _, id := range [][2]string{{"other", "upstream"}, {"k", "other"}} {
		o, err := xrate.New(h.Limiter, id[0], id[1], 10, 20, xrate.Options{Clock: h.Clock})
		if err != nil || admitted(o, 30) != 20 {
			t.Errorf("%v: %v", id, err)
		}
	}
}

// An outage does not stop a Limiter, and by each fallback Tokens says no more than Allow admits.
func TestFallbacks(t *testing.T) {
	for fallback, want := range map[hybrid.Fallback]struct {
		tokens   float64
		admitted int // at most so many at once
	}{hybrid.FairShare: {7, 7}, hybrid.FailClosed: {0, 0}, hybrid.FullLimit: {15, 15}, hybrid.FailOpen: {15, 20}} {
		h := hybridtest.New(t, hybridtest.Options{Limiters: 2, Limiter: hybrid.Options{Fallback: fallback}})
		l := over(t, h.Limiter, 10, 20, h.Clock)
		h.Preload([]string{"k"}, limit.Must(limit.TokenBucket("upstream", 10, time.Second, 20)))
		l.AllowN(at(h.Clock), 5)
		h.Sync()
		h.CutOff()
		if got := l.Tokens(); math.Abs(got-want.tokens) > 1e-6 {
			t.Errorf("%v: %v tokens, want %v", fallback, got, want.tokens)
		}
		if l.AllowN(at(h.Clock), want.admitted+1) || !l.AllowN(at(h.Clock), want.admitted) {
			t.Errorf("%v: not %d are admitted", fallback, want.admitted)
		}
		h.Heal()
	}
}

// Calls at a wrong time are in the figures of the limiter below.
func TestSkewIsInStats(t *testing.T) {
	h, l := fleet(t, 1, 10, 20)
	l[0].AllowN(time.Now(), 1) // the clock of the harness shows another time
	l[0].AllowN(at(h.Clock), -1)
	if got := h.Limiter.Stats().Invalid; got != 2 || l[0].Skewed() != 1 {
		t.Errorf("%d invalid, %d skewed", got, l[0].Skewed())
	}
}
