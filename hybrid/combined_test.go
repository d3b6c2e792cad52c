package hybrid_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// several is 6 in ten seconds and 10 a minute.
var several = limit.Must(limit.Combine("several",
	limit.Must(limit.SlidingWindow("several/10s", 6, 10*time.Second)), limit.Must(limit.SlidingWindow("several/1m", 10, time.Minute))))

// combining is what the limiters have in common, with the methods of one that asks Redis.
type combining interface {
	limit.ContextLimiter
	TakeAtMost(ctx context.Context, key string, rule *limit.Rule, n int64) (int64, limit.Result, error)
	ReserveN(ctx context.Context, key string, rule *limit.Rule, n int64) (ok bool, err error)
}

type remotely struct{ *remote.Limiter }

func (r remotely) ReserveN(ctx context.Context, key string, rule *limit.Rule, n int64) (bool, error) {
	v, err := r.Limiter.ReserveN(ctx, key, rule, n)
	return v.OK(), err
}

type inMemory struct {
	limit.ContextLimiter
	atMost  func(key string, rule *limit.Rule, n int64) (int64, limit.Result)
	reserve func(key string, rule *limit.Rule, n int64) limit.Reservation
}

func (m inMemory) TakeAtMost(_ context.Context, key string, rule *limit.Rule, n int64) (int64, limit.Result, error) {
	n, res := m.atMost(key, rule, n)
	return n, res, nil
}

func (m inMemory) ReserveN(_ context.Context, key string, rule *limit.Rule, n int64) (bool, error) {
	return m.reserve(key, rule, n).OK(), nil
}

// Every limiter decides by all rules of a combined one, and answers for the tightest.
//
// Fault 102: several limits in one rule.
func TestCombined(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, w *world) combining{
		"hybrid": func(t *testing.T, w *world) combining {
			l := w.synced(hybrid.Options{})
			return inMemory{limit.WithContext(l.Limiter), l.TakeAtMost, l.ReserveN}
		},
		"without Redis": func(t *testing.T, _ *world) combining {
			l := limit.Must(hybrid.New(nil, hybrid.Options{}))
			t.Cleanup(func() { l.Close() })
			return inMemory{limit.WithContext(l), l.TakeAtMost, l.ReserveN}
		},
		"remote": func(t *testing.T, w *world) combining {
			rdb := w.client(new(network), nil)
			t.Cleanup(func() { rdb.Close() })
			return remotely{limit.Must(remote.New(rdb, remote.Options{}))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) { decideBySeveral(t, make(t, w), "k", time.Sleep) })
		})
	}
}

func decideBySeveral(t *testing.T, l combining, key string, pass func(time.Duration)) {
	ctx := t.Context()
	want := func(what string, res limit.Result, err error, allowed bool, limit, left int64) {
		t.Helper()
		if err != nil || res.Allowed != allowed || res.Limit != limit || res.Remaining != left || allowed != (res.RetryAfter == 0) {
			t.Fatalf("%s: %+v, %v, want %v and %d of %d", what, res, err, allowed, left, limit)
		}
	}
	res, err := l.Take(ctx, key, several, 4)
	want("Take", res, err, true, 6, 2)
	res, err = l.Take(ctx, key, several, 0)
	want("Take of nothing", res, err, true, 6, 2)
	res, err = l.Peek(ctx, key, several)
	want("Peek", res, err, true, 6, 2)
	res, err = l.Take(ctx, key, several, 3)
	want("Take of too many", res, err, false, 6, 2)
	n, res, err := l.TakeAtMost(ctx, key, several, 5)
	if n != 2 {
		t.Fatalf("%d units granted, want 2", n)
	}
	want("TakeAtMost", res, err, true, 6, 0)
	n, res, err = l.TakeAtMost(ctx, key, several, 5)
	want("TakeAtMost of nothing left", res, err, false, 6, 0)
	if n != 0 {
		t.Fatalf("%d units granted", n)
	}
	if n, err := l.Refund(ctx, key, several, 1); n != 1 || err != nil {
		t.Fatalf("%d units refunded, %v", n, err)
	}
	res, err = l.Peek(ctx, key, several)
	want("after a refund", res, err, true, 6, 1)
	pass(25 * time.Second) // the short window is empty, the long one has 5 of 10
	res, err = l.Peek(ctx, key, several)
	want("of the longer window", res, err, true, 10, 5)
	v, err := l.TakeAll(ctx, limit.Check{Key: "other " + key, Rule: several}, limit.Check{Key: key, Rule: several, N: 6})
	want("TakeAll", v.Result, err, false, 10, 5)
	if v.By != 1 || v.Rule != several.Parts()[1] {
		t.Fatalf("decided by check %d, %v", v.By, v.Rule)
	}
	if n, err := l.Charge(ctx, key, several, 7); n != 7 || err != nil {
		t.Fatalf("%d units charged, %v", n, err)
	}
	res, err = l.Peek(ctx, key, several)
	want("after a charge", res, err, false, 10, 0)
	if ok, err := l.ReserveN(ctx, key, several, 1); ok || err != nil && !errors.Is(err, limit.ErrUnsupported) {
		t.Errorf("reserved, %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	var late *limit.WaitError
	if err := l.WaitN(short, key, several, 1); !errors.As(err, &late) || late.Need < time.Second {
		t.Errorf("WaitN: %v", err)
	}
	long, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	began := time.Now()
	if err := l.WaitN(long, key, several, 6); err != nil || time.Since(began) < 30*time.Second || time.Since(began) > 70*time.Second {
		t.Errorf("WaitN: %v after %v", err, time.Since(began))
	}
	res, err = l.Peek(ctx, key, several)
	want("after the wait", res, err, false, 6, 0)
	pass(time.Second) // a report under way would be booked after Set
	if err := l.Set(ctx, key, several, 3); err != nil {
		t.Fatal(err)
	}
	res, err = l.Peek(ctx, key, several)
	want("after Set", res, err, true, 6, 3)
	dry := several.DryRun()
	res, err = l.Take(ctx, key, dry, 4)
	if err != nil || !res.Allowed || !res.WouldRefuse {
		t.Errorf("a dry run: %+v, %v", res, err)
	}
	if n, res, err := l.TakeAtMost(ctx, key, dry, 4); n != 4 || !res.WouldRefuse || err != nil {
		t.Errorf("a dry run: %d, %+v, %v", n, res, err)
	}
	if _, err := l.Take(ctx, key, several, -1); !errors.Is(err, limit.ErrInvalidN) {
		t.Errorf("-1: %v", err)
	}
	res, err = l.Take(ctx, key, several, 7)
	if err != nil || res.Allowed || res.RetryAfter != limit.Never {
		t.Errorf("more than the smallest limit: %+v, %v", res, err)
	}
}

// What is counted under a combined rule is counted by its parts, and the others of a fleet know it.
//
// Fault 102: several limits in one rule.
func TestCombinedInAFleet(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(2, hybrid.Options{})
		a, b := nodes[0], nodes[1]
		wantAdmitted(t, a.Limiter, "k", several, 10, 6)
		time.Sleep(time.Second)
		if err := b.Preload(bg, []string{"k"}, several); err != nil {
			t.Fatal(err)
		}
		wantAdmitted(t, b.Limiter, "k", several, 10, 0)
		for _, part := range several.Parts() {
			w.wantUsed("k", part, 6)
		}
		s := a.Figures()
		if s.AdmittedUnits != 12 || s.Allowed.Total() != 12 || s.Denied.Total() != 4 || len(s.Rules) != 2 {
			t.Errorf("%+v", s)
		}
		conserved(t, a.Limiter, true)
		list, err := b.Explained(bg, "k", several)
		if err != nil || len(list) != 2 || list[0].Rule != several.Parts()[0] || list[0].Result.Allowed {
			t.Errorf("%+v, %v", list, err)
		}
		if err := a.Reset(bg, "k", several); err != nil {
			t.Fatal(err)
		}
		wantAdmitted(t, a.Limiter, "k", several, 10, 6)
	})
	log := limit.Must(limit.Combine("log", limit.Must(limit.PerSecond("s", 1)), limit.Must(limit.SlidingLog("l", 1, time.Hour))))
	l, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !errors.Is(l.CheckRule(log), limit.ErrUnsupported) || l.Allow("k", log) || l.Figures().Invalid != 1 {
		t.Errorf("a part that cannot be: %v, %+v", l.CheckRule(log), l.Figures())
	}
}

// In an outage as much is granted under a combined rule as a check would get, and never nothing that is
// called allowed.
func TestCombinedAtMostInAnOutage(t *testing.T) {
	small := limit.Must(limit.Parse("small", "2/h, 100/d"))
	for _, policy := range []hybrid.Fallback{hybrid.FairShare, hybrid.FailOpen, hybrid.FailClosed} {
		inBubble(t, func(t *testing.T, w *world) {
			n := w.fleet(3, hybrid.Options{Fallback: policy})[0]
			n.net.down()
			n.Allow("other", small)
			time.Sleep(3 * time.Second)
			wantMode(t, n.Limiter, hybrid.Degraded)
			total := int64(0)
			for range 5 {
				granted, res := n.TakeAtMost("k", small, 2)
				if res.Allowed != (granted > 0) || (res.RetryAfter > 0) == res.Allowed {
					t.Fatalf("%v: %d granted, %+v", policy, granted, res)
				}
				total += granted
			}
			switch {
			case policy == hybrid.FairShare && total != 1, policy == hybrid.FailOpen && total < 5, policy == hybrid.FailClosed && total != 0:
				t.Errorf("%v: %d units granted", policy, total)
			}
		})
	}
}
