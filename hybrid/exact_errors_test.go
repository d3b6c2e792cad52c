package hybrid_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What cannot be decided is an error, and takes nothing.
func TestExactErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		l := n.Limiter
		log := limit.Must(limit.SlidingLog("log", 10, time.Minute))
		ended, cancel := context.WithCancel(bg)
		cancel()
		none := (*hybrid.Limiter)(nil)
		for name, c := range map[string]struct {
			ask  func() (limit.AllResult, error)
			want error
		}{
			"negative":   {func() (limit.AllResult, error) { return l.TakeExact(bg, limit.Check{Key: "k", Rule: longTen, N: -1}) }, limit.ErrInvalidN},
			"no rule":    {func() (limit.AllResult, error) { return l.TakeExact(bg, limit.Check{Key: "k", Rule: nil}) }, limit.ErrNilRule},
			"log":        {func() (limit.AllResult, error) { return l.TakeExact(bg, limit.Check{Key: "k", Rule: log}) }, limit.ErrUnsupported},
			"no limiter": {func() (limit.AllResult, error) { return none.TakeExact(bg, limit.Check{Key: "k", Rule: longTen}) }, limit.ErrClosed},
			"ended":      {func() (limit.AllResult, error) { return l.TakeExact(ended, limit.Check{Key: "k", Rule: longTen}) }, context.Canceled},
			"too many":   {func() (limit.AllResult, error) { return l.TakeExact(bg, limit.Check{Key: "k", Rule: longTen, N: 11}) }, nil},
			"other shape": {func() (limit.AllResult, error) {
				v, err := l.TakeExact(bg, limit.Check{Key: "k", Rule: longTen}, limit.Check{Key: "k", Rule: limit.Must(limit.SlidingWindow("ten", 10, time.Hour))})
				return v, err
			}, limit.ErrUnsupported},
		} {
			if res, err := c.ask(); !errors.Is(err, c.want) || res.Allowed || c.want == nil && (err != nil || res.RetryAfter != limit.Never) {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
		// A combined rule is several checks for Redis, and one for the caller.
		both := limit.Must(limit.Combine("both", limit.Must(limit.PerHour("wide", 100)), limit.Must(limit.PerHour("narrow", 1))))
		if v, err := l.TakeExact(bg, limit.Check{Key: "one", Rule: both, N: 2}); err != nil || v.Allowed || v.By != 0 || v.Rule.Name() != "narrow" {
			t.Errorf("one combined rule: %+v, %v", v, err)
		}
		// The first check is two for Redis. The error and the answer have the caller's number of the bad one.
		v, err := l.TakeExact(bg, limit.Check{Key: "q", Rule: several}, limit.Check{Key: "k", Rule: longTen},
			limit.Check{Key: "k", Rule: limit.Must(limit.SlidingWindow("ten", 10, time.Hour))})
		if err == nil || !strings.Contains(err.Error(), "check 2: ") || v.By != 2 || v.Source != limit.SourceInvalid || v.RetryAfter != limit.Never {
			t.Errorf("other shape behind a combined rule: %+v, %v", v, err)
		}
		w.wantUsed("k", longTen, 0)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if res, err := l.TakeExact(bg, limit.Check{Key: "k", Rule: longTen}); !errors.Is(err, limit.ErrClosed) || res.Allowed {
			t.Errorf("closed: %+v, %v", res, err)
		}
	})
}

// A key that Redis cannot use is an error, and never decided by the fallback: neither it nor what is
// taken together with it, also if the broken one is a dry run.
func TestExactBrokenKey(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		n := w.synced(hybrid.Options{})
		if err := w.admin.RPush(bg, counterKey(r, "bad"), "x").Err(); err != nil {
			t.Fatal(err)
		}
		wrong := func(l *hybrid.Limiter, checks ...limit.Check) {
			t.Helper()
			v, err := l.TakeExact(bg, checks...)
			var broken *limit.KeyError
			if !errors.As(err, &broken) || v.Allowed || checks[v.By].Key != "bad" {
				t.Errorf("%+v, %v", v, err)
			}
		}
		for range 2 {
			wrong(n.Limiter, limit.Check{Key: "bad", Rule: r})
			wrong(n.Limiter, limit.Check{Key: "good", Rule: r}, limit.Check{Key: "bad", Rule: r.DryRun()})
			n.AllowN("bad", r, 10) // the report puts it into quarantine, where the fallback admits no more
			time.Sleep(time.Second)
		}
		if n.Figures().QuarantinedKeys != 1 {
			t.Error("not in quarantine")
		}
		w.wantUsed("good", r, 0)
		if !exact(t, n.Limiter, "good", r) {
			t.Error("refused")
		}
	})
}
