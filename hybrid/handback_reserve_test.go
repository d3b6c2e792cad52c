package hybrid_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// While a caller of another node waits who has reserved ahead, what is handed back goes on counting, and
// a figure says so. When the caller waits no longer, units are given back.
//
// Fault 107: a reservation behind the units that are handed back.
func TestHandedBackBeforeAReservation(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		rule := limit.Must(limit.TokenBucket("bucket", 1, 10*time.Second, 10))
		ample := limit.Must(limit.TokenBucket("bucket", 1, 10*time.Second, 1000))
		nodes := w.fleet(2, hybrid.Options{})
		a, b := nodes[0].Limiter, nodes[1].Limiter
		wantAdmitted(t, a, "k", rule, 10, 10)
		flush(t, a)
		if err := b.Preload(bg, []string{"k"}, rule); err != nil {
			t.Fatal(err)
		}
		if r := b.ReserveN("k", rule, 2); !r.OK() || r.Delay() < 19*time.Second {
			t.Fatal(r.Delay())
		}
		flush(t, b)
		// This node has not heard of the reservation: Redis has.
		a.Refund("k", rule, 3)
		flush(t, a)
		w.wantUsed("k", ample, 12)
		if s := a.Figures(); s.UnreturnedUnits != 3 {
			t.Errorf("%d units are counted as not given back, want 3", s.UnreturnedUnits)
		}
		// By now it has.
		if back := a.Refund("k", rule, 3); back != 0 || a.Figures().UnreturnedUnits != 6 {
			t.Errorf("%d units given back, %d not", back, a.Figures().UnreturnedUnits)
		}
		time.Sleep(21 * time.Second)
		a.Charge("k", rule, 2) // the bucket is above its limit again, and nobody waits
		flush(t, a)
		used := w.used("k", ample)
		if back := a.Refund("k", rule, 3); back != 3 {
			t.Errorf("%d of 3 units given back", back)
		}
		flush(t, a)
		w.wantUsed("k", ample, used-3)
	})
}

// A reservation that was cancelled, and a Wait that gave up, do not stop refunds until they would have been due.
//
// Fault 107: units above the limit, after a reservation that was cancelled.
func TestHandedBackAfterAReservation(t *testing.T) {
	for _, how := range []string{"cancelled", "one of two is left", "gave up"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				rule := limit.Must(limit.TokenBucket("bucket", 1, 10*time.Second, 10))
				ample := limit.Must(limit.TokenBucket("bucket", 1, 10*time.Second, 1000))
				nodes := w.fleet(2, hybrid.Options{})
				a, b := nodes[0].Limiter, nodes[1].Limiter
				wantAdmitted(t, a, "k", rule, 10, 10)
				flush(t, a)
				if err := b.Preload(bg, []string{"k"}, rule); err != nil {
					t.Fatal(err)
				}
				reserve := func(n int64) limit.Reservation {
					r := b.ReserveN("k", rule, n)
					if flush(t, b); !r.OK() || r.Delay() == 0 {
						t.Fatalf("%d units: %v", n, r.Delay())
					}
					return r
				}
				switch how {
				case "cancelled":
					reserve(2).Cancel(bg)
				case "one of two is left":
					reserve(1)
					reserve(1).Cancel(bg)
					flush(t, b)
					time.Sleep(11 * time.Second)
				case "gave up":
					ctx, cancel := context.WithTimeout(bg, time.Second)
					if err := b.WaitN(ctx, "k", rule, 2); err == nil {
						t.Error("admitted")
					}
					cancel()
					ctx, cancel = context.WithCancel(bg)
					gaveUp := make(chan error)
					go func() { gaveUp <- b.WaitN(ctx, "k", rule, 2) }()
					time.Sleep(time.Second)
					flush(t, b)
					cancel()
					if err := <-gaveUp; !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
				flush(t, b)
				a.Charge("k", rule, 3) // above the limit, and nobody waits
				flush(t, a)
				before := w.used("k", ample)
				if back := a.Refund("k", rule, 3); back != 3 {
					t.Errorf("%d of 3 units given back", back)
				}
				flush(t, a)
				w.wantUsed("k", ample, before-3)
			})
		})
	}
}

// Who cancels under a larger limit does not end the waiting of those who have booked by a smaller one.
//
// Fault 107: two limits of one key.
func TestHandedBackUnderTwoLimits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		small := limit.Must(limit.TokenBucket("bucket", 1, 10*time.Second, 10))
		large := limit.Must(limit.TokenBucket("bucket", 1, 10*time.Second, 20))
		ample := limit.Must(limit.TokenBucket("bucket", 1, 10*time.Second, 1000))
		nodes := w.fleet(3, hybrid.Options{})
		a, b, c := nodes[0].Limiter, nodes[1].Limiter, nodes[2].Limiter
		wantAdmitted(t, a, "k", small, 10, 10)
		flush(t, a)
		if err := b.Preload(bg, []string{"k"}, small); err != nil {
			t.Fatal(err)
		}
		if r := b.ReserveN("k", small, 10); !r.OK() || r.Delay() < 99*time.Second {
			t.Fatal(r.Delay())
		}
		flush(t, b)
		if err := c.Preload(bg, []string{"k"}, large); err != nil {
			t.Fatal(err)
		}
		r := c.ReserveN("k", large, 5)
		if flush(t, c); r.Delay() < 49*time.Second {
			t.Fatal(r.Delay())
		}
		r.Cancel(bg)
		flush(t, c)
		a.Refund("k", small, 10)
		flush(t, a)
		if used := w.used("k", ample); used < 19 {
			t.Errorf("Redis counts %d units, and ten wait behind ten that were admitted", used)
		}
	})
}
