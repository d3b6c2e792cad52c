package local

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A combined rule is decided by all of its rules, and answered for by the tightest.
//
// Fault 102: several limits in one rule.
func TestCombined(t *testing.T) {
	r := limit.Must(limit.Parse("api", "6/10m, 10/h"))
	c := clock.NewManual(start)
	l := newLimiter(t, Options{Clock: c})
	want := func(what string, res limit.Result, allowed bool, limit, left int64) {
		t.Helper()
		if res.Allowed != allowed || res.Limit != limit || res.Remaining != left || allowed != (res.RetryAfter == 0) {
			t.Fatalf("%s: %+v, want %v and %d of %d", what, res, allowed, left, limit)
		}
	}
	want("Take", l.Take("k", r, 4), true, 6, 2)
	want("Take of nothing", l.Take("k", r, 0), true, 6, 2)
	want("Take of too many", l.Take("k", r, 3), false, 6, 2)
	if n, res := l.TakeAtMost("k", r, 5); n != 2 || !res.Allowed {
		t.Fatalf("%d, %+v", n, res)
	}
	if n, res := l.TakeAtMost("k", r, 5); n != 0 || res.Allowed {
		t.Fatalf("%d, %+v", n, res)
	}
	if n, res := l.TakeAtMost("k", r, 0); n != 0 || !res.Allowed {
		t.Fatalf("%d, %+v", n, res)
	}
	if l.Allow("k", r) || l.Refund("k", r, 1) != 1 || !l.Allow("k", r) {
		t.Fatal("a refund does not give one unit")
	}
	c.Advance(25 * time.Minute)
	want("Peek of the longer window", l.Peek("k", r), true, 10, 4)
	v := l.TakeAll(limit.Check{Key: "other", Rule: r}, limit.Check{Key: "k", Rule: r, N: 5})
	want("TakeAll", v.Result, false, 10, 4)
	if v.By != 1 || v.Rule != r.Parts()[1] {
		t.Fatalf("decided by check %d, %v", v.By, v.Rule)
	}
	want("the other", l.Peek("other", r), true, 6, 6)
	if n := l.Charge("k", r, 7); n != 7 {
		t.Fatalf("%d units charged", n)
	}
	want("after a charge", l.Peek("k", r), false, 10, 0)
	if l.Reserve("k", r).OK() {
		t.Error("reserved")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var late *limit.WaitError
	if err := l.Wait(ctx, "k", r); !errors.As(err, &late) {
		t.Errorf("Wait: %v", err)
	}
	if err := l.Set("k", r, 5); err != nil {
		t.Fatal(err)
	}
	want("after Set", l.Peek("k", r), true, 6, 1)
	if err := l.Wait(ctx, "k", r); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if err := l.Reset("k", r); err != nil {
		t.Fatal(err)
	}
	want("after Reset", l.Peek("k", r), true, 6, 6)
	if res := l.Take("k", r.DryRun(), 7); !res.Allowed || !res.WouldRefuse {
		t.Errorf("a dry run: %+v", res)
	}
	was := l.Stats().Invalid
	for name, ok := range map[string]bool{"Allow": l.AllowN("k", r, -1), "Take": l.Take("k", r, -1).Allowed, "Set": l.Set("k", r, -1) == nil, "Refund": l.Refund("k", r, -1) > 0, "nil": (*Limiter)(nil).Allow("k", r)} {
		if ok {
			t.Errorf("%s of -1 units", name)
		}
	}
	if got := l.Stats().Invalid - was; got != 4 {
		t.Errorf("%d invalid questions were counted, want 4", got)
	}
	if n := testing.AllocsPerRun(100, func() { l.Allow("k", r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
