package hybrid_test

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// most returns how many of the units of a rule of ten can count at the same time, if so many are
// charged.
func most(r *limit.Rule, n int64) int64 {
	if arith.Of(r).Algorithm == arith.TokenBucket {
		return min(n, 2*r.Limit())
	}
	return n
}

// Charged units reach Redis once, however often the report is sent, and the other nodes refuse for
// them.
//
// Fault 101: units are charged above the limit.
func TestChargeOnce(t *testing.T) {
	for name, fault := range map[string]func(*network){
		"sound":        func(*network) {},
		"reply lost":   func(n *network) { n.cut = 1 },
		"request lost": func(n *network) { n.drop = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
				nodes := w.fleet(2, hybrid.Options{})
				a, b := nodes[0], nodes[1]
				wantAdmitted(t, a.Limiter, "k", r, 4, 4)
				time.Sleep(time.Second)
				a.net.set(fault)
				want := most(r, 4+100)
				if got := a.Charge("k", r, 100); got != want-4 {
					t.Errorf("%d units charged, want %d", got, want-4)
				}
				wantAdmitted(t, a.Limiter, "k", r, 1, 0)
				time.Sleep(2 * time.Second)
				b.Peek("k", r)
				if err := b.Preload(bg, []string{"k"}, r); err != nil {
					t.Fatal(err)
				}
				wantAdmitted(t, b.Limiter, "k", r, 1, 0)
				if arith.Of(r).Algorithm != arith.TokenBucket {
					w.wantTotal("k", r, want)
				}
				for _, n := range nodes {
					flush(t, n.Limiter)
					conserved(t, n.Limiter, true)
				}
				if s := a.Figures(); s.ChargedUnits != 100 || s.ForgivenUnits != 104-want || s.AdmittedUnits != 104 || s.BookedUnits != want {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// Nodes that charge one key at the same time do not know of each other. Redis books no more than
// MaxDebt allows, and all agree on it.
//
// Fault 101: units are charged above the limit.
func TestChargeByAll(t *testing.T) {
	for _, debt := range []time.Duration{0, -1, 3 * time.Hour} {
		inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
			nodes := w.fleet(4, hybrid.Options{MaxDebt: debt})
			for _, n := range nodes {
				n.Allow("k", r)
			}
			time.Sleep(2 * time.Second)
			for _, n := range nodes {
				n.Charge("k", r, 25)
			}
			time.Sleep(2 * time.Second)
			sum, charged := int64(0), int64(0)
			for _, n := range nodes {
				flush(t, n.Limiter)
				conserved(t, n.Limiter, true)
				s := n.Figures()
				sum, charged = sum+s.BookedUnits, charged+s.ChargedUnits
			}
			want := int64(104)
			if arith.Of(r).Algorithm == arith.TokenBucket {
				full := r.Period() / time.Duration(arith.Of(r).Units) * time.Duration(r.Limit())
				want = r.Limit()
				switch {
				case debt == 0:
					want *= 2
				case debt > 0:
					want += int64(debt) * arith.Of(r).Units / int64(r.Period())
				}
				want = min(want, 104)
				if sum < want || sum > want+1 { // Redis forgives whole units
					t.Errorf("debt %v: %d units booked, want %d", debt, sum, want)
				}
				first := nodes[0].Peek("k", r)
				// Redis' clock shows whole microseconds, which each node maps to its own time.
				for i, n := range nodes {
					res, unit := n.Peek("k", r), full/time.Duration(r.Limit())
					if over := res.RetryAfter - unit*time.Duration(want-r.Limit()+1); over > unit || over < -time.Minute || (res.RetryAfter-first.RetryAfter).Abs() >= 2*time.Microsecond {
						t.Errorf("debt %v: node %d is refused for %v, %v more than the promise", debt, i, res.RetryAfter, over)
					}
				}
			} else {
				w.wantTotal("k", r, want)
			}
			if charged != 100 {
				t.Errorf("%d units charged by all", charged)
			}
		})
	}
}

// In an outage a charged unit costs what an admitted one does. Afterwards it counts once.
//
// Fault 101: units are charged above the limit.
func TestChargeInAnOutage(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		nodes := w.fleet(2, hybrid.Options{})
		n := nodes[0]
		wantAdmitted(t, n.Limiter, "k", r, 2, 2)
		time.Sleep(time.Second)
		n.net.down()
		time.Sleep(3 * time.Second)
		wantMode(t, n.Limiter, hybrid.Degraded)
		if got := n.Charge("k", r, 3); got != 3 {
			t.Errorf("%d units charged of 3", got)
		}
		wantAdmitted(t, n.Limiter, "k", r, 10, 1) // (10 - 2) / 2 - 3
		if got := n.Charge("k", r, 2); got != 2 {
			t.Errorf("%d units charged of 2", got)
		}
		wantAdmitted(t, n.Limiter, "k", r, 1, 0)
		n.net.up()
		time.Sleep(5 * time.Second)
		wantMode(t, n.Limiter, hybrid.Synced)
		w.wantUsed("k", r, 8)
		wantAdmitted(t, n.Limiter, "k", r, 10, 2)
		conserved(t, n.Limiter, false)
	})
}

// A bucket is not refused for longer than MaxDebt says, whatever is charged in an outage and however
// many nodes there were.
//
// Fault 101: units are charged above the limit.
func TestChargeMuchInAnOutage(t *testing.T) {
	for _, policy := range []hybrid.Fallback{hybrid.FairShare, hybrid.FullLimit, hybrid.FailOpen, hybrid.FailClosed} {
		t.Run(policy.String(), func(t *testing.T) {
			inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
				nodes := w.fleet(3, hybrid.Options{Fallback: policy})
				n := nodes[0]
				n.Allow("k", r)
				time.Sleep(time.Second)
				n.net.down()
				time.Sleep(3 * time.Second)
				wantMode(t, n.Limiter, hybrid.Degraded)
				for _, units := range []int64{4, 14} { // what a unit costs in an outage forgives nothing
					if got := n.Charge("k", r, units); got != units {
						t.Errorf("%d units charged of %d", got, units)
					}
				}
				for range 5 {
					n.Charge("k", r, 1000)
				}
				if policy == hybrid.FailOpen {
					wantAdmitted(t, n.Limiter, "k", r, 1, 1)
				} else {
					wantAdmitted(t, n.Limiter, "k", r, 1, 0)
				}
				n.net.up()
				time.Sleep(5 * time.Second)
				wantMode(t, n.Limiter, hybrid.Synced)
				flush(t, n.Limiter)
				conserved(t, n.Limiter, true)
				s := n.Figures()
				if want := most(r, 5019); s.BookedUnits < want || s.BookedUnits > want+1 {
					t.Errorf("%d units booked, want %d: %+v", s.BookedUnits, want, s)
				}
			})
		})
	}
}

// Bad arguments charge nothing.
//
// Fault 101: units are charged above the limit.
func TestChargeOfWhatCannotBe(t *testing.T) {
	log := limit.Must(limit.SlidingLog("log", 10, time.Hour))
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		for name, got := range map[string]int64{
			"negative": n.Charge("k", longTen, -5), "smallest": n.Charge("k", longTen, math.MinInt64), "no rule": n.Charge("k", nil, 1),
			"a log": n.Charge("k", log, 1), "nothing": n.Charge("k", longTen, 0),
			"nil": (*hybrid.Limiter)(nil).Charge("k", longTen, 1), "zero": new(hybrid.Limiter).Charge("k", longTen, 1),
		} {
			if got != 0 {
				t.Errorf("%s: %d units charged", name, got)
			}
		}
		if s := n.Figures(); s.Invalid != 4 || s.ChargedUnits != 0 || s.Keys > 1 {
			t.Errorf("%+v", s)
		}
		for range 3 {
			if got := n.Charge("k", longTen, math.MaxInt64); got < 0 || got > arith.MaxUnits {
				t.Errorf("%d units charged", got)
			}
		}
		time.Sleep(2 * time.Second)
		wantAdmitted(t, n.Limiter, "k", longTen, 1, 0)
		wantMode(t, n.Limiter, hybrid.Synced)
		conserved(t, n.Limiter, true)
	})
}
