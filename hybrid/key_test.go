package hybrid_test

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A key counts with its limiter and with the fleet, and each of its decisions is
// one of the limiter's.
func TestKey(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		nodes := w.fleet(2, hybrid.Options{})
		k, far := nodes[0].Key("k", r), nodes[1].Key("k", r)
		if !k.Allow() || !k.AllowN(2) || !k.Take(2).Allowed || !nodes[0].Allow("k", r) {
			t.Fatal("refused")
		}
		time.Sleep(time.Second)
		far.Allow() // hears of the others
		time.Sleep(time.Second)
		if left := far.Peek().Remaining; left != 3 {
			t.Errorf("%d remain on the other node, want 3", left)
		}
		if n, _ := far.TakeAtMost(5); n != 3 {
			t.Errorf("took %d, want 3", n)
		}
		time.Sleep(time.Second)
		k.Peek() // hears of them too
		time.Sleep(time.Second)
		for range 5 {
			if k.Allow() || k.Take(1).Allowed || nodes[0].Allow("k", r) {
				t.Error("more than the limit")
			}
		}
		w.wantUsed("k", r, 10)
		if far.Refund(2) != 2 {
			t.Error("nothing handed back")
		}
		time.Sleep(time.Second)
		k.Allow() // the first hears of it
		time.Sleep(time.Second)
		if s := nodes[0].Stats(); s.Allowed.Total()+s.Denied.Total() != 4+15+1 {
			t.Errorf("%+v", s)
		}
		if err := k.Reset(bg); err != nil || !k.ReserveN(4).OK() || k.WaitN(bg, 6) != nil || k.Allow() {
			t.Errorf("after a reset: %v", err)
		}
		time.Sleep(10 * time.Millisecond) // or what is under way may come on top of what is set
		if err := k.Set(bg, 9); err != nil || !k.Allow() || k.Allow() {
			t.Errorf("after it was set: %v", err)
		}
		for _, n := range nodes {
			flush(t, n.Limiter)
			conserved(t, n.Limiter, true)
		}
	})
}

// Who was refused is let through at once when an outage begins that lets all
// pass, and refused at once when one refuses all.
func TestKeyInAnOutage(t *testing.T) {
	for policy, want := range map[hybrid.Fallback]bool{hybrid.FailOpen: true, hybrid.FailClosed: false} {
		inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
			n := w.synced(hybrid.Options{Fallback: policy})
			k := n.Key("k", r)
			for range 15 {
				k.Allow()
			}
			n.net.down()
			for mode := n.State().Mode; mode == hybrid.Synced; mode = n.State().Mode {
				if k.Allow() {
					t.Error("admitted while the limit was used up")
				}
				time.Sleep(time.Millisecond)
			}
			if k.Allow() != want || n.Key("new", r).Allow() != want {
				t.Errorf("%v: does not do as it says", policy)
			}
		})
	}
}

func TestKeysThatCannotBeAsked(t *testing.T) {
	l := newLimiter(t, nil, hybrid.Options{})
	log := limit.Must(limit.SlidingLog("log", 5, time.Minute))
	for what, k := range map[string]*hybrid.Key{
		"nil": nil, "zero": {}, "nil limiter": (*hybrid.Limiter)(nil).Key("k", longTen), "zero limiter": new(hybrid.Limiter).Key("k", longTen),
		"nil rule": l.Key("k", nil), "zero rule": l.Key("k", new(limit.Rule)), "log": l.Key("k", log),
	} {
		n, res := k.TakeAtMost(1)
		if k.Allow() || k.AllowN(0) || k.Take(1).Allowed || k.Peek().Allowed || n != 0 || res.Allowed || k.Refund(1) != 0 || k.Reserve().OK() {
			t.Errorf("%s: admitted", what)
		}
		if k.Wait(bg) == nil || k.Set(bg, 1) == nil || k.Reset(bg) == nil {
			t.Errorf("%s: no error", what)
		}
	}
	was := l.Stats().Invalid
	k := l.Key("k", longTen)
	if k.AllowN(-1) || k.Take(-1).RetryAfter != limit.Never || !errors.Is(k.Set(bg, -1), limit.ErrInvalidN) {
		t.Error("a negative number was accepted")
	}
	if got := l.Stats().Invalid - was; got != 2 {
		t.Errorf("%d invalid, want 2", got)
	}
	dry := l.Key("k", longTen.DryRun())
	if !k.AllowN(10) || !dry.Allow() || !dry.Take(1).WouldRefuse || k.Allow() || l.Stats().WouldRefuse != 2 {
		t.Error("a dry run")
	}
	if err := l.Shutdown(bg); err != nil || !l.Key("new", longTen).Allow() || k.Allow() {
		t.Errorf("after Close: %v", err)
	}
}

// See the test of this name in package local.
func TestKeyIsOneLine(t *testing.T) {
	if is := unsafe.Sizeof(hybrid.Key{}); unsafe.Sizeof(uintptr(0)) == 8 && is != 64 {
		t.Errorf("a Key has %d bytes, want 64", is)
	}
}
