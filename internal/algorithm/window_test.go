package algorithm

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// What has been under way in one window is nothing to the next that uses its buckets.
func TestSpareBucketsAreEmpty(t *testing.T) {
	r := windowRule(t, 1000, time.Hour, 10)
	for range 100 { // a pool may forget what it was given
		w := NewWindow(arith.Of(r.Arith()), 1e15, 0, true)
		w.Book(arith.Of(r.Arith()), 1e15, 7, 7, 1)
		w.Collect(arith.Of(r.Arith()))
		w.forgetSent()
		for i, u := range spareBuckets(fewBuckets) {
			if u != 0 {
				t.Fatalf("%d units in bucket %d", u, i)
			}
		}
		w.Collect(arith.Of(r.Arith()))
		if w.sentUnits != 0 || len(w.list(w.sent)) != 0 {
			t.Fatalf("%d units sent, in %v", w.sentUnits, w.list(w.sent))
		}
	}
}

// What one window was handed back is nothing to the others, which have the same empty slices.
func TestNothingHandedStaysEmpty(t *testing.T) {
	r := windowRule(t, 1000, time.Hour, 3)
	w := NewWindow(arith.Of(r.Arith()), 1e15, 0, true)
	w.Book(arith.Of(r.Arith()), 1e15, 7, 7, 1)
	w.Collect(arith.Of(r.Arith()))
	if back, _, withdrawn := w.Refund(arith.Of(r.Arith()), 1e15, 5, 1, arith.Span{}, arith.Span{}, true); back != 5 || withdrawn != 0 || !w.ReturnsAt(arith.Of(r.Arith()), 1e15) {
		t.Fatalf("%d units came back, %d of them not reported", back, withdrawn)
	}
	if nothingHanded.back != nil || nothingHanded.sentBack != nil {
		t.Error("what one window was handed back is another's")
	}
}

// A folded window is what it was, and one with units in two buckets is not folded.
func TestFold(t *testing.T) {
	r, now := windowRule(t, 1000, 10*time.Second, 10), int64(1e15)
	w := NewWindow(arith.Of(r.Arith()), now, 5, true)
	w.Book(arith.Of(r.Arith()), now, 7, 7, 1)
	w.Roll(arith.Of(r.Arith()), now+int64(3*time.Second), 1)
	f, ok := w.Fold(arith.Of(r.Arith()), 1)
	if !ok {
		t.Fatal("not folded")
	}
	var s SmallWindow
	s.Unfold(&f, arith.Of(r.Arith()), 1)
	for at := now + int64(3*time.Second); at < now+int64(12*time.Second); at += int64(time.Second) / 3 {
		w.Roll(arith.Of(r.Arith()), at, 1)
		s.Roll(arith.Of(r.Arith()), at, 1)
		if is, was := s.Describe(arith.Of(r.Arith()), at, 1, 1, true), w.Describe(arith.Of(r.Arith()), at, 1, 1, true); is != was {
			t.Errorf("at %d: %+v, before %+v", at, is, was)
		}
	}
	s.Book(arith.Of(r.Arith()), now+int64(11*time.Second), 1, 1, 1)
	s.Roll(arith.Of(r.Arith()), now+int64(13*time.Second), 1)
	s.Book(arith.Of(r.Arith()), now+int64(13*time.Second), 1, 1, 1)
	if _, ok := s.Fold(arith.Of(r.Arith()), 1); ok {
		t.Error("a window with units in two buckets was folded")
	}
}

// A folded window knows that the time of its last unit may be too late: of pending units some
// were handed back.
func TestFoldedTimeMayBeLate(t *testing.T) {
	r, now := arith.Of(windowRule(t, 1000, 10*time.Second, 10).Arith()), int64(1e15)
	for _, back := range []int64{0, 5} {
		w := NewWindow(r, now, 0, true)
		w.Book(r, now, 7, 7, 1)
		w.Refund(r, now, back, 1, arith.Span{}, arith.Span{}, true)
		f, ok := w.Fold(r, 1)
		if !ok {
			t.Fatal("not folded")
		}
		var s SmallWindow
		if s.Unfold(&f, r, 1); s.late != (back > 0) {
			t.Errorf("%d units handed back: the time may be too late: %v", back, s.late)
		}
	}
}
