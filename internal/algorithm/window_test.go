package algorithm

import (
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// A window has its buckets in order, none of them empty, whatever was handed back or has left.
func TestWindowsHaveNoEmptyBuckets(t *testing.T) {
	r, now := arith.Of(windowRule(t, 1000, 10*time.Second, 10)), int64(1e15)
	second := int64(time.Second)
	w := new(Window)
	w.Begin(r, now, Clock{Sure: true})
	ids := func(what string, want ...int64) {
		t.Helper()
		var is []int64
		for _, b := range w.list {
			is = append(is, b.id-now/second)
		}
		if !slices.Equal(is, want) {
			t.Errorf("%s: buckets %v, want %v", what, is, want)
		}
	}
	for _, at := range []int64{0, 2, 3} {
		w.Roll(r, now+at*second, 1)
		w.Book(r, now+at*second, 5, 5, 1)
	}
	ids("three", 0, 2, 3)
	w.Refund(r, now+3*second, 1, Refund{Units: 7, Reported: true})
	ids("handed back", 0, 2)
	w.Collect(r)
	w.Refund(r, now+3*second, 1, Refund{Units: 3, Reported: true})
	w.DropSent(r, 1)
	ids("what was sent is reset, but not what was handed back", 2)
	w.Settle(r, report.Answer{State: report.State{Buckets: []report.Bucket{{ID: now/second + 1, Units: 4}, {ID: now/second - 20, Units: 4}, {ID: now / second}}}, Now: now, ServerNow: now, Floor: true}, 1)
	ids("answered", 1, 2)
	w.Roll(r, now+11*second, 1)
	ids("the oldest counts in part", 1, 2)
	w.Roll(r, now+13*second, 1)
	ids("all have left")
	if w.newer != 0 || w.HasReturns() {
		t.Errorf("%d units in no bucket, handed back: %v", w.newer, w.HasReturns())
	}
}

// A unit that is not acknowledged counts as several in an outage, in the oldest bucket as in the
// others.
func TestOldestBucketIsMultiplied(t *testing.T) {
	r, now := arith.Of(windowRule(t, 30, 10*time.Second, 10)), int64(1e15)
	w := new(Window)
	w.Begin(r, now, Clock{Sure: true})
	w.Book(r, now+int64(time.Second/2), 5, 5, 1)
	w.SetMultiplier(r, now, 1, 4)
	for _, later := range []time.Duration{time.Second / 2, 5 * time.Second, 10 * time.Second} { // the last: none has left yet
		at := now + int64(later)
		w.Roll(r, at, 4)
		if !w.Fits(r, at, 10) || w.Fits(r, at, 11) {
			t.Errorf("after %v the units do not count four times", later)
		}
	}
}

// After a reset a window tells Redis again what it was told, also if Redis' clock was set back before.
//
// Fault 116: a clock that was set back, a key that was set, and lost.
func TestSetAfterTheClockWentBack(t *testing.T) {
	r, now := arith.Of(windowRule(t, 1000, 10*time.Second, 10)), int64(1e15)
	second := int64(time.Second)
	w := new(Window)
	w.Begin(r, now, Clock{Sure: true})
	state := func(id, units int64) report.State {
		return report.State{Buckets: []report.Bucket{{ID: id, Units: units}}}
	}
	w.Settle(r, report.Answer{State: state(now/second, 4), Now: now, At: now, ServerNow: now, Floor: true}, 1)
	w.Follow(r, now, now, 1, Clock{Off: -5 * second, Sure: true, WentBack: true, BackTo: now - 5*second})
	if _, known := w.KnownState(r, now); known != nil {
		t.Errorf("it is known in which buckets the units are: %v", known)
	}
	w.Renew(r, report.Answer{State: state(now/second-5, 3), Now: now, At: now, ServerNow: now - 5*second}, 1)
	if _, known := w.KnownState(r, now); len(known) != 1 || known[0].Units != 3 {
		t.Errorf("known after a reset: %v", known)
	}
}
