package hybrid_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Who waits for a large part of a limit that is hardly used gets it, although
// its own node always has something that the others have not heard of.
func TestWaitBesideTraffic(t *testing.T) {
	for _, r := range []*limit.Rule{limit.Must(limit.TokenBucket("f", 10000, time.Second, 10000)), limit.Must(limit.SlidingWindow("s", 10000, time.Second))} {
		inBubble(t, func(t *testing.T, w *world) {
			nodes := w.fleet(2, hybrid.Options{})
			nodes[0].net.set(func(n *network) { n.lag = 2 * time.Millisecond }) // something is always unheard of
			stop := make(chan struct{})
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						nodes[0].Allow("k", r)
					}
				}
			}()
			time.Sleep(2 * time.Second)
			began := time.Now()
			ctx, cancel := context.WithTimeout(bg, 3*time.Second)
			defer cancel()
			if err := nodes[0].WaitN(ctx, "k", r, 6000); err != nil || time.Since(began) > 500*time.Millisecond {
				t.Errorf("%v: %v after %v", r, err, time.Since(began))
			}
			close(stop)
			time.Sleep(time.Second)
		})
	}
}

// Who waits for what other nodes take all the time does not keep its own node
// from its part for ever.
func TestWaitGivesUpItsClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(2, hybrid.Options{})
		r := limit.Must(limit.SlidingWindow("s", 100, time.Second))
		const step = 20 * time.Millisecond
		for range 75 { // a waiter finds the key in use, and knows it
			nodes[0].Allow("k", r)
			nodes[1].Allow("k", r)
			time.Sleep(step)
		}
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		waited := make(chan error, 1)
		began := time.Now()
		go func() { waited <- nodes[0].WaitN(ctx, "k", r, 100) }()
		// The others ask until the wait is over: a window that they left alone
		// before would have room for it at last.
		var err error
		allowed, over := 0, false
		for !over {
			nodes[1].Allow("k", r)
			if now := time.Since(began); nodes[0].Allow("k", r) && now > 4*time.Second && now < 9*time.Second {
				allowed++
			}
			select {
			case err = <-waited:
				over = true
			case <-time.After(step):
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waited: %v, after %v", err, time.Since(began))
		}
		if allowed < 200 {
			t.Errorf("%d of 250 allowed beside who waits", allowed)
		}
	})
}

// What was set counts on the node that has set it, also if it did not know the
// key before, and if Redis loses it at once or later.
//
// Fault 74: what was set stands after a loss.
func TestSetOfAnUnknownKey(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		n := w.synced(hybrid.Options{})
		if err := n.Set(bg, "k", r, 10); err != nil {
			t.Fatal(err)
		}
		if res := n.Take("k", r, 1); res.Allowed || n.Peek("k", r).Remaining != 0 {
			t.Errorf("%+v", res)
		}
		if err := n.Set(bg, "new", r, 7); err != nil || n.Peek("new", r).Remaining != 3 {
			t.Errorf("%v, %+v", err, n.Peek("new", r))
		}
		flush(t, n.Limiter)
		w.wantUsed("k", r, 10)
		w.wantUsed("new", r, 7)
		other := w.synced(hybrid.Options{})
		if err := other.Preload(bg, []string{"new"}, r); err != nil {
			t.Fatal(err)
		}
		for _, used := range []int64{8, 3, 10, 12, 0, 7} {
			if err := errors.Join(n.Set(bg, "new", r, used), other.Flush(bg)); err != nil {
				t.Fatal(err)
			}
			if left, here := other.Peek("new", r).Remaining, n.Peek("new", r).Remaining; left != max(10-used, 0) || here != left {
				t.Errorf("set to %d: %d remain, and %d here", used, left, here)
			}
			w.wantUsed("new", r, min(used, 10))
		}
		w.redis.FlushAll()
		time.Sleep(5 * time.Second)
		w.wantUsed("new", r, 7)
		if err := n.Set(bg, "new", r, 4); err != nil {
			t.Fatal(err)
		}
		w.redis.FlushAll()
		time.Sleep(5 * time.Second)
		w.wantUsed("new", r, 4)
	})
}

// What was booked while everything was let through is handed back all the same.
func TestCancelInAnOutage(t *testing.T) {
	for _, policy := range []hybrid.Fallback{hybrid.FailOpen, hybrid.FullLimit, hybrid.FairShare} {
		inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
			n := w.synced(hybrid.Options{Fallback: policy})
			n.Allow("k", r)
			time.Sleep(time.Second)
			n.net.down()
			time.Sleep(5 * time.Second)
			wantMode(t, n.Limiter, hybrid.Degraded)
			v := n.ReserveN("k", r, 8)
			time.Sleep(time.Second)
			if v.Cancel(bg); !v.OK() {
				t.Errorf("%v: %+v", policy, v)
			}
			n.net.up()
			time.Sleep(10 * time.Second)
			flush(t, n.Limiter)
			w.wantUsed("k", r, 1)
			conserved(t, n.Limiter, true)
		})
	}
}
