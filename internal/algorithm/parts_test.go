package algorithm

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What a node believes is what Redis will count when it has received all that the node has to report: what is
// on its way, and then the rest. In between the node believes the same, as long as there are no refunds: they
// are for known units, and so come before the units of the same report.
func TestViewIsWhatRedisMakesOfIt(t *testing.T) {
	r := arith.Of(funnelRule(t, 10, 7, 3*time.Second))
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		n := func() int64 { return rng.Int64N(5) }
		viewAgrees(t, numbers{}, counts{n(), n(), n(), n(), n()}, func(s, back, u int64) int64 {
			if s -= back; s < 0 {
				s = 0
			}
			return s + u
		})
		run := func() (u Run) {
			if u.Units = n(); u.Units > 0 {
				u.TAT = arith.Span{NS: rng.Int64N(int64(5 * time.Second))}
			}
			return u
		}
		credits := func() credit { return credit{span: r.Cost(n())} }
		known := arith.Span{NS: rng.Int64N(int64(5 * time.Second))}
		viewAgrees(t, levels{r}, leakyParts{known, credits(), run(), credits(), run()}, func(x arith.Span, c credit, u Run) arith.Span {
			if x = r.Sub(x, c.span); u.Units == 0 {
				return x
			}
			for range u.Units {
				x = r.Add(x, r.Cost(1))
			}
			return x.Max(u.TAT)
		})
	}
}

// viewAgrees compares the view of p with a Redis that applies reports.
func viewAgrees[S comparable, U, B any](t *testing.T, m sums[S, U, B], p parts[S, U, B], apply func(s S, back B, units U) S) {
	t.Helper()
	onItsWay := apply(p.known, p.sentBack, p.sent)
	if got := p.booked(m, 1); got != onItsWay {
		t.Fatalf("%+v: booked %v, Redis counts %v", p, got, onItsWay)
	}
	if got, want := p.view(m, 1), apply(onItsWay, p.back, p.pend); got != want {
		t.Fatalf("%+v: the view is %v, Redis counts %v", p, got, want)
	}
	settled := p
	settled.keepSent(m)
	if got, want := settled.view(m, 1), p.view(m, 1); got != want {
		t.Fatalf("%+v: booked, and the view is %v, was %v", p, got, want)
	}
	var none B
	p.back, p.sentBack = none, none
	before := p.view(m, 1)
	p.collect(m)
	if got := p.view(m, 1); got != before {
		t.Fatalf("%+v: collected, and the view is %v, was %v", p, got, before)
	}
	p.giveBack(m)
	if got := p.view(m, 1); got != before {
		t.Fatalf("%+v: given back, and the view is %v, was %v", p, got, before)
	}
	if empty := new(parts[S, U, B]); p.booked(m, 1) != p.known || p.reported(m, 1) != p.known || empty.view(m, 1) != empty.known {
		t.Fatalf("%+v: something is sent", p)
	}
}

// A reset drops what waits to be reported, which was admitted before it. What is on its way stays: the answer
// to it is still to come.
func TestRenewDropsWhatIsPending(t *testing.T) {
	now := int64(1e18)
	for _, rule := range []*limit.Rule{funnelRule(t, 10, 10, time.Hour), windowRule(t, 10, time.Hour, 10)} {
		r, s := arith.Of(rule), newState(rule, now, 0)
		p := s.(Replica)
		s.Book(r, now, 3, 3, 1)
		p.Collect(r)
		s.Book(r, now, 2, 2, 1)
		if got := p.Renew(r, report.Answer{State: report.State{Gen: 1}, At: now, Now: now, ServerNow: now}, 1); got != 2 {
			t.Errorf("%v: %d units dropped, want 2", rule, got)
		}
		if pending, sent := p.Units(); pending != 0 || sent != 3 || usedAt(s, r, now) != 3 {
			t.Errorf("%v: %d units pending, %d sent, %d count", rule, pending, sent, usedAt(s, r, now))
		}
		p.DropSent(r, 1)
		if used := usedAt(s, r, now); used != 0 {
			t.Errorf("%v: %d units count after the reset", rule, used)
		}
	}
}
