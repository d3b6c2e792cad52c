package local

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A key and its limiter count together, whatever becomes of the counter.
func TestKeyCountsWithTheLimiter(t *testing.T) {
	for _, rule := range everyRule(t, 10) {
		l := newLimiter(t, Options{MaxKeys: 64, Clock: clock.NewManual(time.Unix(1e9, 0))})
		k, other := l.Key("k", rule), l.Key("k", rule)
		got := 0
		for i := range 40 {
			ask := []func() bool{k.Allow, other.Allow, func() bool { return l.Allow("k", rule) }, func() bool { return k.Take(1).Allowed }}[i%4]
			if ask() {
				got++
			}
		}
		if got != 10 {
			t.Errorf("%v: admitted %d of 10", rule, got)
		}
		if k.Peek().Allowed || k.Peek() != l.Peek("k", rule) {
			t.Errorf("%v: peek %+v", rule, k.Peek())
		}
		if k.Refund(3) != 3 || !k.AllowN(3) || k.Allow() {
			t.Errorf("%v: a refund", rule)
		}
		if err := k.Set(4); err != nil {
			t.Errorf("%v: %v", rule, err)
		}
		if n, res := k.TakeAtMost(100); n != 6 || !res.Allowed {
			t.Errorf("%v: %d, %+v", rule, n, res)
		}
		if err := k.Reset(); err != nil || !k.ReserveN(2).OK() || k.WaitN(context.Background(), 8) != nil || k.Allow() {
			t.Errorf("%v: after a reset: %v", rule, err)
		}
	}
}

func TestKeysThatCannotBeAsked(t *testing.T) {
	rule := slow(10)
	l := newLimiter(t, Options{})
	for what, k := range map[string]*Key{
		"nil": nil, "zero": {}, "nil limiter": (*Limiter)(nil).Key("k", rule), "zero limiter": new(Limiter).Key("k", rule),
		"nil rule": l.Key("k", nil), "zero rule": l.Key("k", new(limit.Rule)),
	} {
		n, res := k.TakeAtMost(1)
		if k.Allow() || k.AllowN(0) || k.Take(1).Allowed || k.Peek().Allowed || n != 0 || res.Allowed || k.Refund(1) != 0 || k.Reserve().OK() {
			t.Errorf("%s: admitted", what)
		}
		if k.Wait(context.Background()) == nil || k.Set(1) == nil || k.Reset() == nil {
			t.Errorf("%s: no error", what)
		}
	}
	late := new(limit.Rule)
	of := l.Key("k", late)
	if *late = *rule; of.Allow() || of.Take(1).Allowed {
		t.Error("bound to a rule that was none")
	}
	k := l.Key("k", rule)
	if k.AllowN(-1) || k.Take(-1).RetryAfter != limit.Never || !errors.Is(k.Set(-1), limit.ErrInvalidN) || !k.AllowN(10) || k.Allow() {
		t.Error("negative numbers")
	}
	dry := l.Key("k", rule.DryRun())
	if !dry.Allow() || !dry.Take(1).WouldRefuse || l.Allow("k", rule) {
		t.Error("a dry run")
	}
}

// A check by a handle reads one cache line of it, and the allocator puts what is as large as
// a line at the beginning of one.
func TestKeyIsOneLine(t *testing.T) {
	if is := unsafe.Sizeof(Key{}); unsafe.Sizeof(uintptr(0)) == 8 && is != 64 {
		t.Errorf("a Key has %d bytes, want 64", is)
	}
}
