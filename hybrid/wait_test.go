package hybrid_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// perSecond are rules of 20 units that are whole after a second.
var perSecond = []*limit.Rule{
	limit.Must(limit.TokenBucket("f", 20, time.Second, 20)),
	limit.Must(limit.SlidingWindow("s", 20, time.Second)),
	limit.Must(limit.FixedWindow("x", 20, time.Second)),
}

func inBubblesPerSecond(t *testing.T, test func(t *testing.T, w *world, r *limit.Rule)) {
	for _, r := range perSecond {
		t.Run(arith.Of(r).Algorithm.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) { test(t, w, r) })
		})
	}
}

// noContext is what a caller passes who has none.
var noContext context.Context

// served is who was admitted when.
type served struct {
	mu  sync.Mutex
	all []turn
}

type turn struct {
	node, nr int
	n        int64
	at       time.Time
}

func (s *served) add(node, nr int, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, turn{node, nr, n, time.Now()})
}

// Waiting works on a shared limit: each node serves its callers in order, all of
// them are served, and together they get what the limit gives, not more.
func TestWaitOnASharedLimit(t *testing.T) {
	inBubblesPerSecond(t, func(t *testing.T, w *world, r *limit.Rule) {
		nodes := w.fleet(3, hybrid.Options{})
		for _, n := range nodes {
			n.Allow("k", r)
		}
		time.Sleep(time.Second)
		for _, n := range nodes {
			n.AllowN("k", r, 6)
		}
		time.Sleep(50 * time.Millisecond)
		var got served
		var all sync.WaitGroup
		began := time.Now()
		for nr := range 40 {
			for i, n := range nodes {
				all.Go(func() {
					units := int64(1 + nr%3)
					if err := n.WaitN(bg, "k", r, units); err != nil {
						t.Error(err)
					}
					got.add(i, nr, units)
				})
			}
			synctest.Wait()
		}
		all.Wait()
		next := map[int]int{}
		sum := int64(0)
		// Of those who were served at the same time any may say so first.
		slices.SortFunc(got.all, func(a, b turn) int { return cmp.Or(a.at.Compare(b.at), a.nr-b.nr) })
		for _, a := range got.all {
			if a.nr != next[a.node] {
				t.Fatalf("node %d served caller %d before %d", a.node, a.nr, next[a.node])
			}
			next[a.node]++
			sum += a.n
		}
		// 237 units at 20 a second; what is lost at the ends of windows counts
		// against them, what others have not heard of yet counts for them.
		if took := time.Since(began); took < 9*time.Second || took > 16*time.Second {
			t.Errorf("%d units took %v", sum, took)
		}
		for i, a := range got.all {
			in := int64(0)
			for _, b := range got.all[i:] {
				if b.at.Sub(a.at) < time.Second {
					in += b.n
				}
			}
			if most := int64(20 + 3*3 + 2); in > most && arith.Of(r).Algorithm == arith.SlidingWindow {
				t.Fatalf("%d units within a second from %v on", in, a.at.Sub(began))
			}
		}
		time.Sleep(2 * time.Second)
		for _, n := range nodes {
			conserved(t, n.Limiter, true)
			if left := n.Peek("k", r).Remaining; left != 20 {
				t.Errorf("%d remain in the end", left)
			}
		}
	})
}

// Another node that asks all the time does not starve one that waits.
func TestWaitIsNotStarvedByAnotherNode(t *testing.T) {
	inBubblesPerSecond(t, func(t *testing.T, w *world, r *limit.Rule) {
		nodes := w.fleet(2, hybrid.Options{})
		stop := make(chan struct{})
		var spin sync.WaitGroup
		spin.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
					nodes[1].Allow("k", r)
				}
			}
		})
		nodes[0].Allow("k", r)
		time.Sleep(3 * time.Second)
		units := []int64{1, 2, 1}
		if arith.Of(r).Algorithm == arith.TokenBucket {
			units = []int64{1, 20, 5} // it is booked ahead
		}
		for _, n := range units {
			began := time.Now()
			if err := nodes[0].WaitN(bg, "k", r, n); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("waited %v for %d units of 20 a second", took, n)
			}
		}
		close(stop)
		spin.Wait()
	})
}

// Fault 58: what was booked for somebody who gives up is given back once,
// whether or not it has been reported to Redis, and whatever becomes of the batch.
func TestWaitCanceledOnASharedLimit(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("slow", 10, time.Hour, 10))
	for _, c := range []struct {
		name   string
		before time.Duration // how long it waits
		net    func(n *network)
	}{
		{"at once", 0, func(*network) {}},
		{"before it is reported", time.Millisecond / 2, func(*network) {}},
		{"after it was reported", time.Second, func(*network) {}},
		{"and the reply is lost", time.Second, func(n *network) { n.sever() }},
		{"in an outage", time.Second, func(n *network) { n.down() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				nodes := w.fleet(2, hybrid.Options{})
				n := nodes[0]
				n.AllowN("k", rule, 9)
				time.Sleep(time.Second)
				ctx, cancel := context.WithCancel(bg)
				var all sync.WaitGroup
				all.Go(func() {
					if err := n.WaitN(ctx, "k", rule, 8); !errors.Is(err, context.Canceled) {
						t.Errorf("%v", err)
					}
				})
				time.Sleep(c.before)
				synctest.Wait()
				if c.before == time.Second {
					if used := w.used("k", rule); used != 10 {
						t.Errorf("Redis counts %d units while 17 are booked", used)
					}
				}
				c.net(n.net)
				cancel()
				all.Wait()
				if left := n.Peek("k", rule).Remaining; left > 1 {
					t.Errorf("%d remain", left)
				}
				n.net.up()
				time.Sleep(10 * time.Second)
				flush(t, n.Limiter)
				w.wantUsed("k", rule, 9)
				if left := n.Peek("k", rule).Remaining; left != 1 {
					t.Errorf("%d remain", left)
				}
				conserved(t, n.Limiter, true)
				if s := n.Figures(); s.RefundedUnits != 8 {
					t.Errorf("%d units handed back", s.RefundedUnits)
				}
			})
		})
	}
}

// Reservations are in Redis: the other nodes come after them.
func TestReserveOnASharedLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(2, prompt)
		r := limit.Must(limit.TokenBucket("f", 10, time.Hour, 10)) // one in 6 minutes
		for _, n := range nodes {
			n.Allow("k", r)
		}
		time.Sleep(time.Second)
		nodes[0].AllowN("k", r, 8)
		time.Sleep(time.Second)
		nodes[1].Peek("k", r) // has it ask
		time.Sleep(time.Second)
		about := func(d, want time.Duration) bool { return (d - want).Abs() < 10*time.Second }
		a := nodes[0].ReserveN("k", r, 2)
		time.Sleep(10 * time.Millisecond)
		nodes[1].Peek("k", r)
		time.Sleep(time.Second)
		b := nodes[1].ReserveN("k", r, 3)
		flush(t, nodes[1].Limiter)
		if !a.OK() || !about(a.Delay(), 12*time.Minute) || !b.OK() || !about(b.Delay(), 30*time.Minute) {
			t.Errorf("%v and %v", a.Delay(), b.Delay())
		}
		a.Cancel(bg)
		a.Cancel(bg)
		time.Sleep(110 * time.Millisecond)
		nodes[1].Peek("k", r)
		time.Sleep(time.Second)
		if res := nodes[1].Take("k", r, 1); res.Allowed || !about(res.RetryAfter, 36*time.Minute) {
			t.Errorf("after the first has canceled, with another node's behind: %+v", res)
		}
		if back := nodes[0].Refund("k", r, 5); back != 0 {
			t.Errorf("%d handed back with a queue behind", back)
		}
		b.Cancel(bg)
		time.Sleep(time.Second)
		if res := nodes[1].Take("k", r, 1); res.Allowed || !about(res.RetryAfter, 18*time.Minute) {
			t.Errorf("after both have canceled: %+v", res)
		}
		if v := nodes[0].ReserveN("k", perSecond[1], 21); v.OK() || v.Delay() != limit.Never {
			t.Errorf("more than there are: %+v", v)
		}
		nodes[0].AllowN("k", longTen, 10)
		if v := nodes[0].Reserve("k", longTen); v.OK() || v.Delay() < time.Hour {
			t.Errorf("ahead of a window: %+v", v)
		}
	})
}

// During an outage waiting goes by the fallback.
func TestWaitInAnOutage(t *testing.T) {
	for policy, want := range map[hybrid.Fallback]time.Duration{
		hybrid.FairShare: 2 * time.Second / 4, hybrid.FullLimit: time.Second / 4, hybrid.FailOpen: 0,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				nodes := w.fleet(2, hybrid.Options{Fallback: policy})
				r := perSecond[0]
				nodes[0].Allow("k", r)
				time.Sleep(time.Second)
				nodes[0].net.down()
				time.Sleep(5 * time.Second)
				wantMode(t, nodes[0].Limiter, hybrid.Degraded)
				for nodes[0].Allow("k", r) && policy != hybrid.FailOpen {
				}
				began := time.Now()
				if err := nodes[0].WaitN(bg, "k", r, 5); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); (took - want).Abs() > 100*time.Millisecond {
					t.Errorf("took %v, want %v", took, want)
				}
			})
		})
	}
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{Fallback: hybrid.FailClosed})
		n.net.down()
		n.Allow("k", longTen)
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		var late *limit.WaitError
		if err := n.Wait(ctx, "k", perSecond[0]); !errors.As(err, &late) {
			t.Errorf("closed: %v", err)
		}
		if v := n.Reserve("k", perSecond[0]); v.OK() {
			t.Errorf("closed: %+v", v)
		}
		time.AfterFunc(10*time.Second, n.net.up)
		if err := n.Wait(bg, "k", perSecond[0]); err != nil {
			t.Errorf("until it is back: %v", err)
		}
		wantMode(t, n.Limiter, hybrid.Synced)
	})
}

// Who waits hears of a reset, and who has reserved before it hands nothing back.
func TestWaitHearsOfAReset(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		nodes := w.fleet(2, hybrid.Options{})
		nodes[0].AllowN("k", r, 8)
		time.Sleep(time.Second)
		v := nodes[1].ReserveN("k", r, 2)
		time.Sleep(time.Second)
		time.AfterFunc(5*time.Second, func() {
			if err := nodes[1].Reset(bg, "k", r); err != nil {
				t.Error(err)
			}
		})
		nodes[0].Peek("k", r)
		time.Sleep(time.Second)
		began := time.Now()
		if err := nodes[0].WaitN(bg, "k", r, 4); err != nil || time.Since(began) < 4*time.Second || time.Since(began) > 7*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(time.Second)
		used := w.used("k", r)
		if v.Cancel(bg); used > 4 {
			t.Errorf("Redis counts %d units", used)
		}
		time.Sleep(time.Second)
		w.wantUsed("k", r, used)
	})
}

func TestWaitRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		r := perSecond[0]
		ended, cancel := context.WithCancel(bg)
		cancel()
		log := limit.Must(limit.SlidingLog("log", 5, time.Minute))
		var none *hybrid.Limiter
		for name, c := range map[string]struct{ err, want error }{
			"negative":      {n.WaitN(bg, "k", r, -1), limit.ErrInvalidN},
			"most negative": {n.WaitN(bg, "k", r, math.MinInt64), limit.ErrInvalidN},
			"nil rule":      {n.Wait(bg, "k", nil), limit.ErrNilRule},
			"zero rule":     {n.Wait(bg, "k", new(limit.Rule)), limit.ErrNilRule},
			"a log":         {n.Wait(bg, "k", log), limit.ErrUnsupported},
			"nil limiter":   {none.Wait(bg, "k", r), limit.ErrClosed},
			"zero limiter":  {new(hybrid.Limiter).Wait(bg, "k", r), limit.ErrClosed},
			"too many":      {n.WaitN(bg, "k", r, 21), limit.ErrTooMany},
			"ended":         {n.Wait(ended, "k", r), context.Canceled},
			"nil context":   {n.Wait(noContext, "nil", r), nil},
			"nothing":       {n.WaitN(bg, "k", r, 0), nil},
			"a dry run":     {n.WaitN(bg, "dry", r.DryRun(), 50), nil},
		} {
			if !errors.Is(c.err, c.want) || (c.err == nil) != (c.want == nil) {
				t.Errorf("%s: %v, want %v", name, c.err, c.want)
			}
		}
		for name, v := range map[string]limit.Reservation{
			"negative": n.ReserveN("k", r, -1), "nil rule": n.Reserve("k", nil), "a log": n.Reserve("k", log),
			"nil limiter": none.Reserve("k", r), "zero limiter": new(hybrid.Limiter).Reserve("k", r),
		} {
			if v.Cancel(bg); v.OK() || v.Delay() != limit.Never {
				t.Errorf("%s: %+v", name, v)
			}
		}
		if left := n.Peek("k", r).Remaining; left != 20 {
			t.Errorf("%d remain", left)
		}
		n.AllowN("k", longFunnel, 10)
		var all sync.WaitGroup
		all.Go(func() {
			if err := n.WaitN(bg, "k", longFunnel, 5); !errors.Is(err, limit.ErrClosed) {
				t.Errorf("closed meanwhile: %v", err)
			}
		})
		time.Sleep(time.Second)
		if err := n.Shutdown(bg); err != nil {
			t.Error(err)
		}
		all.Wait()
		w.wantUsed("k", longFunnel, 10)
		if err := n.WaitN(bg, "k", longFunnel, 5); !errors.Is(err, limit.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// Callers have been given what is admitted, less what was cancelled: also what cannot be handed
// back, because Redis has lost it and it counts no more, or because others have booked behind it.
func TestCancelledUnitsAreCounted(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("slow", 10, 10*time.Second, 10))
	for name, between := range map[string]func(w *world, n *node){
		"handed back":      func(*world, *node) {},
		"lost":             func(w *world, _ *node) { w.redis.FlushAll() },
		"reset":            func(_ *world, n *node) { _ = n.Reset(bg, "k", rule) },
		"booked behind it": func(_ *world, n *node) { n.ReserveN("k", rule, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				n := w.synced(hybrid.Options{})
				given := int64(10)
				wantAdmitted(t, n.Limiter, "k", rule, int(given), int(given))
				if name == "booked behind it" {
					given += 2
				}
				ctx, cancel := context.WithCancel(bg)
				var all sync.WaitGroup
				all.Go(func() {
					if err := n.WaitN(ctx, "k", rule, 3); !errors.Is(err, context.Canceled) {
						t.Errorf("%v", err)
					}
				})
				synctest.Wait()
				between(w, n)
				cancel()
				all.Wait()
				time.Sleep(2 * time.Second)
				if s := n.Figures(); s.AdmittedUnits-s.CancelledUnits != given || s.CancelledUnits != 3 {
					t.Errorf("%d units admitted, %d cancelled, %d handed back; callers have %d", s.AdmittedUnits, s.CancelledUnits, s.RefundedUnits, given)
				}
				conserved(t, n.Limiter, false)
			})
		})
	}
}
