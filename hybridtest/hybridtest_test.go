package hybridtest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // it reports the connections that fail by design
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

var tenAMinute = limit.Must(limit.TokenBucket("ten", 10, time.Minute, 10))

// taken returns how many units a limiter admits one by one, of up to n.
func taken(l *hybrid.Limiter, n int) (units int) {
	for range n {
		if l.Allow("k", tenAMinute) {
			units++
		}
	}
	return units
}

func TestLimitersShareWhatIsSynced(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 3})
	if len(h.Limiters) != 3 || h.Limiter != h.Limiters[0] {
		t.Fatalf("%d limiters", len(h.Limiters))
	}
	if n := taken(h.Limiter, 4); n != 4 {
		t.Fatalf("%d units", n)
	}
	h.Preload([]string{"k"}, tenAMinute)
	for i, l := range h.Limiters {
		if res := l.Peek("k", tenAMinute); res.Remaining != 6 || res.Source != limit.SourceSynced {
			t.Errorf("limiter %d: %+v, want 6 remaining", i, res)
		}
	}
	if n := taken(h.Limiters[2], 3); n != 3 {
		t.Fatalf("%d units", n)
	}
	h.Sync()
	if res := h.Limiters[1].Peek("k", tenAMinute); res.Remaining != 3 {
		t.Errorf("%+v, want 3 remaining", res)
	}
}

func TestTimePassesWithTheClock(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	if n := taken(h.Limiter, 11); n != 10 {
		t.Fatalf("%d units", n)
	}
	h.Preload([]string{"k"}, tenAMinute)
	if res := h.Limiters[1].Take("k", tenAMinute, 1); res.Allowed || res.RetryAfter != 6*time.Second {
		t.Fatalf("%+v", res)
	}
	h.Clock.Advance(6 * time.Second)
	h.Sync() // Redis' time has passed as well
	if res := h.Limiters[1].Take("k", tenAMinute, 1); !res.Allowed || res.Remaining != 0 {
		t.Errorf("%+v after its RetryAfter", res)
	}
}

// What is cut off neither reports nor hears, decides by the fallback, and makes up for
// it when it is healed.
func TestCutOffAndHeal(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	h.CutOff()
	for i, l := range h.Limiters {
		if s := l.State(); s.Mode != hybrid.Degraded {
			t.Fatalf("limiter %d is %v", i, s)
		}
		// Each of two has half of the limit.
		if n := taken(l, 10); n != 5 {
			t.Errorf("limiter %d admits %d units, want 5", i, n)
		}
		if src := l.Peek("k", tenAMinute).Source; src != limit.SourceDegraded {
			t.Errorf("limiter %d decides as %v", i, src)
		}
	}
	// Longer than the limiters wait before they try again.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := h.Limiter.Flush(ctx); err == nil || h.Limiter.State().Mode != hybrid.Degraded {
		t.Errorf("%v, %v: it has reported to a Redis that is cut off", err, h.Limiter.State())
	}
	h.Heal()
	for i, l := range h.Limiters {
		res := l.Peek("k", tenAMinute)
		if res.Allowed || res.Source != limit.SourceSynced || l.State().Mode != hybrid.Synced {
			t.Errorf("limiter %d: %+v, %v: both together have taken the limit", i, res, l.State())
		}
	}
	h.Clock.Advance(time.Minute)
	h.Sync()
	if n := taken(h.Limiter, 11); n != 10 {
		t.Errorf("%d units a minute later", n)
	}
}

// Redis forgets a node that it has not heard of for a day. That is no loss of data: nothing is
// counted, and there is no event.
func TestLongOutageIsNoLoss(t *testing.T) {
	for _, rule := range []*limit.Rule{tenAMinute, limit.Must(limit.SlidingWindow("hourly", 10, time.Hour)), limit.Must(limit.TokenBucket("weekly", 10, 7*24*time.Hour, 10))} {
		for _, out := range []time.Duration{2 * time.Hour, 40 * time.Hour} {
			var events atomic.Int64
			h := hybridtest.New(t, hybridtest.Options{Limiters: 2, Limiter: hybrid.Options{OnEvent: func(hybrid.Event) { events.Add(1) }}})
			for _, l := range h.Limiters {
				l.AllowN("k", rule, 2)
			}
			h.Sync()
			h.CutOff()
			h.Limiter.Allow("k", rule)
			h.Clock.Advance(out)
			h.Limiter.Allow("k", rule)
			h.Heal()
			for i, l := range h.Limiters {
				if s := inside.Of(l).Figures(); s.Losses+s.RolledBackKeys > 0 || events.Load() > 0 {
					t.Errorf("%v, %v: limiter %d: %d losses, %d keys rolled back, %d events", rule, out, i, s.Losses, s.RolledBackKeys, events.Load())
				}
			}
		}
	}
}

func TestOptionsReachTheLimiters(t *testing.T) {
	start := time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC)
	h := hybridtest.New(t, hybridtest.Options{Start: start, Limiter: hybrid.Options{Fallback: hybrid.FailClosed}})
	if now := time.Unix(0, int64(h.Clock.Now())).UTC(); now != start {
		t.Errorf("it is %v", now)
	}
	h.CutOff()
	h.CutOff() // again: nothing more
	if h.Limiter.Allow("k", tenAMinute) {
		t.Error("the fallback is not the one that was chosen")
	}
}

// A service closes its limiter, or a node of several ends: the others go on.
func TestClosedLimitersAreLeftOut(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	if n := taken(h.Limiters[0], 4); n != 4 {
		t.Fatalf("%d units", n)
	}
	if err := h.Limiters[0].Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Preload([]string{"k"}, tenAMinute)
	if res := h.Limiters[1].Peek("k", tenAMinute); res.Remaining != 6 {
		t.Errorf("%+v, want 6 remaining", res)
	}
	h.CutOff()
	h.Heal()
	h.Sync()
	if err := h.Limiters[1].Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.CutOff() // nobody is left
	h.Heal()
}

func TestBubbleIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(fake)
		f.run(func() { hybridtest.New(f, hybridtest.Options{}) })
		if !strings.Contains(f.failure, "bubble") {
			t.Errorf("%q", f.failure)
		}
	})
}

// fake is a test that may fail.
type fake struct {
	failure  string
	cleanups []func()
}

func (*fake) Helper()            {}
func (f *fake) Cleanup(g func()) { f.cleanups = append(f.cleanups, g) }

func (f *fake) Fatalf(format string, args ...any) {
	f.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// run calls a test, and then what it has left to be cleaned up.
func (f *fake) run(test func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		test()
	}()
	<-done
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
}

func TestFailures(t *testing.T) {
	for want, test := range map[string]func(f *fake){
		"must be 1 to 100": func(f *fake) { hybridtest.New(f, hybridtest.Options{Limiters: 101}) },
		"MaxKeys":          func(f *fake) { hybridtest.New(f, hybridtest.Options{Limiter: hybrid.Options{MaxKeys: -1}}) },
		"limiter 0 cannot be": func(f *fake) {
			h := hybridtest.New(f, hybridtest.Options{})
			h.CutOff()
			h.Sync()
		},
	} {
		f := new(fake)
		if f.run(func() { test(f) }); !strings.Contains(f.failure, want) {
			t.Errorf("%q, want %q", f.failure, want)
		}
	}
}
