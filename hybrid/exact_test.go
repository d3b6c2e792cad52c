package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// mostTogether is how many calls go to Redis in one pipeline.
const mostTogether = 128

// exact takes one unit, and reports whether it was admitted. An error fails the test.
func exact(t testing.TB, l *hybrid.Limiter, key string, rule *limit.Rule) bool {
	t.Helper()
	res, err := l.TakeExact(bg, limit.Check{Key: key, Rule: rule})
	if err != nil {
		t.Errorf("TakeExact: %v", err)
	}
	return res.Allowed
}

// Nodes that ask at the same moment, and at the next, admit no unit more than the limit.
//
// Fault 104: what all nodes take exactly at the same time.
func TestExactFleet(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		nodes := w.fleet(5, hybrid.Options{})
		var admitted atomic.Int64
		var all sync.WaitGroup
		for _, n := range nodes {
			n.net.set(func(n *network) { n.lag = time.Millisecond })
			for range 20 {
				all.Go(func() {
					time.Sleep(rand.N(5 * time.Millisecond))
					if exact(t, n.Limiter, "k", r) {
						admitted.Add(1)
					}
				})
			}
		}
		all.Wait()
		if admitted.Load() != 10 {
			t.Errorf("%d units of 10 admitted", admitted.Load())
		}
		w.wantUsed("k", r, 10)
		for _, n := range nodes {
			conserved(t, n.Limiter, true)
		}
	})
}

// Once a node knows that a key is used up it refuses without asking: from an answer, or because
// another node has told it.
//
// Fault 104: who is refused from memory, and for how long.
func TestExactRefusesFromMemory(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		nodes := w.fleet(2, hybrid.Options{})
		a, b := nodes[0].Limiter, nodes[1].Limiter
		nodes[0].net.set(func(n *network) { n.lag = time.Millisecond })
		for i := range 10 {
			if !exact(t, a, "k", r) {
				t.Fatalf("unit %d refused", i)
			}
		}
		time.Sleep(10 * time.Millisecond) // the notice arrives
		for _, l := range []*hybrid.Limiter{a, b, a, b} {
			if res, err := l.TakeExact(bg, limit.Check{Key: "k", Rule: r}); err != nil || res.Allowed || res.RetryAfter <= 0 || res.Remaining != 0 {
				t.Errorf("%+v, %v", res, err)
			}
		}
		if s, o := a.Figures(), b.Figures(); s.ExactAsked != 10 || o.ExactAsked != 0 || o.Denied.Notice != 2 || s.Allowed.Remote != 10 {
			t.Errorf("%d and %d calls of Redis; %+v %+v", s.ExactAsked, o.ExactAsked, s.Allowed, o.Denied)
		}
		if err := a.Reset(bg, "k", r); err != nil { // what makes room is told as well
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		if !exact(t, b, "k", r) {
			t.Error("refused after a reset")
		}
	})
}

// A node's own Take sees what its TakeExact has taken, and the other way round.
//
// Fault 104: units of both kinds on one key.
func TestExactBesideTake(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		n := w.synced(unhurried)
		a := n.Limiter
		n.net.set(func(n *network) { n.lag = time.Millisecond })
		for range 7 {
			exact(t, a, "k", r)
		}
		wantAdmitted(t, a, "k", r, 5, 3)
		if exact(t, a, "k", r) {
			t.Error("admitted although the units of Take use up the key")
		}
		flush(t, a)
		conserved(t, a, true)
		w.wantUsed("k", r, 10)
	})
}

// A lost reply is an error, and the units may have been taken. They are not taken twice.
//
// Fault 104: a lost reply.
func TestExactReplyLost(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		n := w.synced(hybrid.Options{})
		exact(t, n.Limiter, "warm", r)
		n.net.set(func(n *network) { n.cut = 1 })
		res, err := n.TakeExact(bg, limit.Check{Key: "k", Rule: r, N: 3})
		var away *hybrid.UnavailableError
		if !errors.As(err, &away) || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		w.wantUsed("k", r, 3)
		time.Sleep(time.Second)
		if res, err := n.TakeExact(bg, limit.Check{Key: "k", Rule: r, N: 7}); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		if s := n.Figures(); s.ExactAsked != 3 || s.ExactFailed != 1 {
			t.Errorf("%+v", s)
		}
		conserved(t, n.Limiter, true)
	})
}

// In an outage the fallback decides, at once, and what it admits is reported afterwards.
//
// Fault 104: an outage.
func TestExactInOutage(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		nodes := w.fleet(2, hybrid.Options{})
		n := nodes[0]
		if !exact(t, n.Limiter, "k", r) {
			t.Fatal("refused")
		}
		n.net.down()
		for n.State().Mode != hybrid.Degraded {
			time.Sleep(time.Second)
		}
		began := time.Now()
		for i := range 6 { // of the 9 units that are left this node has a half
			res, err := n.TakeExact(bg, limit.Check{Key: "k", Rule: r})
			if err != nil || res.Source != limit.SourceDegraded || res.Allowed != (i < 4) {
				t.Errorf("call %d: %+v, %v", i, res, err)
			}
		}
		if time.Since(began) != 0 {
			t.Errorf("waited %v", time.Since(began))
		}
		n.net.up()
		time.Sleep(time.Minute)
		wantMode(t, n.Limiter, hybrid.Synced)
		w.wantUsed("k", r, 5)
		conserved(t, n.Limiter, true)
	})
}

// While a pipeline hangs callers wait no longer than their contexts, and who was not sent takes
// nothing. When the outage is noticed, those that wait are decided by the fallback.
//
// Fault 104: contexts that end, and a server that does not answer.
func TestExactWhileRedisHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := longTen
		n := w.synced(hybrid.Options{})
		n.net.set(func(n *network) { n.swallow = true })
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
				defer cancel()
				began := time.Now()
				if res, err := n.TakeExact(ctx, limit.Check{Key: "k", Rule: r}); !errors.Is(err, context.DeadlineExceeded) || res.Allowed {
					t.Errorf("%+v, %v", res, err)
				}
				if d := time.Since(began); d > 101*time.Millisecond {
					t.Errorf("waited %v", d)
				}
			})
		}
		all.Wait()
		for n.State().Mode != hybrid.Degraded {
			time.Sleep(10 * time.Millisecond)
		}
		if res, err := n.TakeExact(bg, limit.Check{Key: "k", Rule: r}); err != nil || !res.Allowed || res.Source != limit.SourceDegraded {
			t.Errorf("%+v, %v", res, err)
		}
		n.net.up()
		n.net.sever()
		time.Sleep(time.Minute)
		conserved(t, n.Limiter, true)
		w.wantUsed("k", r, 1)
	})
}

// Redis is far away, and most of the calls have to make a connection first. Close waits for a call that is
// under way, and a caller that waits for others leaves when its context ends.
//
// Fault 104: distance, and a limiter that is closed.
func TestExactFarAway(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		n.net.set(func(n *network) { n.lag = 150 * time.Millisecond })
		time.Sleep(10 * time.Second)
		wantMode(t, n.Limiter, hybrid.Synced)
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				if !exact(t, n.Limiter, fmt.Sprint(i), longTen) {
					t.Errorf("call %d refused", i)
				}
			})
		}
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(10*time.Millisecond, cancel)
		began := time.Now()
		if _, err := n.TakeExact(ctx, limit.Check{Key: "k", Rule: longTen}); !errors.Is(err, context.Canceled) || time.Since(began) > 11*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		all.Wait()
		all.Go(func() {
			if !exact(t, n.Limiter, "last", longTen) {
				t.Error("the last call refused")
			}
		})
		time.Sleep(time.Millisecond)
		n.net.set(func(n *network) { n.lag = 0 }) // what closing says arrives before the call
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		w.wantUsed("last", longTen, 1)
		w.wantUsed("k", longTen, 0)
		all.Wait()
	})
}

// Calls that wait for a pipeline when an outage begins are not sent any more: the fallback decides.
//
// Fault 104: an outage begins while calls wait.
func TestExactWaitsIntoAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		n.net.set(func(n *network) { n.swallow = true })
		var all sync.WaitGroup
		var failed, apart atomic.Int64
		const calls = 4 * 2 * mostTogether // pipelines that are under way at once, twice
		for i := range calls {
			all.Go(func() {
				time.Sleep(time.Duration(i%8) * time.Millisecond)
				switch res, err := n.TakeExact(bg, limit.Check{Key: fmt.Sprint(i), Rule: hundred}); {
				case err != nil:
					failed.Add(1)
				case res.Allowed && res.Source == limit.SourceDegraded:
					apart.Add(1)
				default:
					t.Errorf("%+v", res)
				}
			})
		}
		all.Wait()
		if n.State().Mode != hybrid.Degraded || failed.Load() == 0 || apart.Load() == 0 || failed.Load()+apart.Load() != calls {
			t.Errorf("%v: %d calls of %d have failed, the fallback has decided %d", n.State(), failed.Load(), calls, apart.Load())
		}
		n.net.up()
		n.net.sever()
		time.Sleep(time.Minute)
		conserved(t, n.Limiter, true)
		if s := n.Figures(); int64(s.BookedUnits) != apart.Load() {
			t.Errorf("%d units are booked, the fallback has admitted %d", s.BookedUnits, apart.Load())
		}
	})
}

// Callers share a pipeline while several calls are under way.
func TestExactTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		n.net.set(func(n *network) { n.lag = 10 * time.Millisecond })
		exact(t, n.Limiter, "warm", hundred)
		before := n.net.traffic()
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() {
				if !exact(t, n.Limiter, fmt.Sprint(i), hundred) {
					t.Errorf("key %d refused", i)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		// Four callers send by themselves. The other 296 calls are three pipelines. Each may make a
		// connection, with a greeting. Besides there are a report or heartbeat.
		if is := n.net.traffic(); is.sent-before.sent > 30 || is.dials-before.dials > 7 {
			t.Errorf("%d writes, %d connections", is.sent-before.sent, is.dials-before.dials)
		}
	})
}

// Several checks are decided together or not at all, also those of a combined rule, and a dry run
// stops nobody.
//
// Fault 104: several limits and checks, and dry runs.
func TestExactAll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.synced(hybrid.Options{}).Limiter
		for i := range 8 { // 6 in ten seconds
			if got, want := exact(t, l, "k", several), i < 6; got != want {
				t.Fatalf("call %d: %v", i, got)
			}
		}
		part := several.Parts()
		w.wantUsed("k", part[1], 6)
		all := func(want bool, by int, checks ...limit.Check) {
			t.Helper()
			v, err := l.TakeExact(bg, checks...)
			if err != nil || v.Allowed != want || by >= 0 && v.By != by {
				t.Errorf("%+v, %v", v, err)
			}
		}
		all(false, 0, limit.Check{Key: "k", Rule: several}, limit.Check{Key: "other", Rule: longTen})
		all(false, 1, limit.Check{Key: "other", Rule: longTen}, limit.Check{Key: "k", Rule: several})
		w.wantUsed("other", longTen, 0)
		all(true, -1, limit.Check{Key: "k", Rule: several.DryRun()}, limit.Check{Key: "other", Rule: longTen, N: 10})
		w.wantUsed("other", longTen, 10)
		res, err := l.TakeExact(bg, limit.Check{Key: "other", Rule: longTen.DryRun()})
		if err != nil || !res.Allowed || !res.WouldRefuse {
			t.Errorf("%+v, %v", res, err)
		}
		w.wantUsed("other", longTen, 10)
		all(true, -1)
		conserved(t, l, true)
		if s := l.Figures(); s.WouldRefuse != 2 {
			t.Errorf("%d would be refused", s.WouldRefuse)
		}
	})
}

// When Redis has lost its data, the nodes restore what they have taken exactly, too.
//
// Fault 104: data that is lost.
func TestExactAfterLoss(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		n := w.synced(hybrid.Options{})
		l := n.Limiter
		n.net.set(func(n *network) { n.lag = time.Millisecond })
		for range 10 {
			exact(t, l, "k", r)
		}
		w.redis.FlushAll()
		for range 50 {
			if exact(t, l, "k", r) {
				t.Fatal("admitted after Redis had lost the key")
			}
			time.Sleep(time.Second)
		}
		w.wantUsed("k", r, 10)
	})
}

// Refund gives back what it says, also if more is taken exactly before that is reported. While a report
// of the key is under way, the node does not know yet what it has just taken, and says that too.
func TestExactRefund(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		n := w.synced(unhurried)
		exact(t, n.Limiter, "warm", r)
		n.net.set(func(n *network) { n.lag = 100 * time.Microsecond })
		back := int64(0)
		for i := range 9 {
			if !exact(t, n.Limiter, "k", r) {
				t.Fatalf("call %d refused", i)
			}
			back += n.Refund("k", r, 1)
		}
		flush(t, n.Limiter)
		if back < 5 {
			t.Errorf("%d units of 9 refunded", back)
		}
		w.wantUsed("k", r, 9-back)
		conserved(t, n.Limiter, true)
	})
}

// Who waits behind calls that Redis does not answer waits no longer than they do, and then takes nothing.
func TestExactWaitsInTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{DegradeAfter: 100})
		n.net.set(func(n *network) { n.swallow = true })
		fine := limit.Must(limit.SlidingWindowBuckets("fine", 10, time.Hour, 1000)) // a pipeline carries one
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				began := time.Now()
				ctx, cancel := context.WithTimeout(bg, time.Minute)
				defer cancel()
				res, err := n.TakeExact(ctx, limit.Check{Key: "k", Rule: fine})
				var away *hybrid.UnavailableError
				if d := time.Since(began); !errors.As(err, &away) || away.Reason != "timeout" || res.Allowed || d > 8*250*time.Millisecond+time.Millisecond {
					t.Errorf("%+v, %v after %v", res, err, d)
				}
			})
		}
		all.Wait()
		if s := n.Figures(); s.ExactAsked > 8 || s.ExactFailed != 50 {
			t.Errorf("%d calls, %d failed", s.ExactAsked, s.ExactFailed)
		}
	})
}
