package counter

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// shelf is a leaky bucket as Redis keeps it for the counters of several nodes.
type shelf struct {
	tat       arith.Span
	waiting   int64 // until when callers wait, ns
	gen, born int64
}

// exchange reports what a counter has, and answers.
func (s *shelf) exchange(c *Counter, r *limit.Rule, now int64) {
	c.mark(outdated)
	c.Touch(now, r)
	c.Collect(now, Urgent)
	c.Collect(now, Normal)
	var rep report.Report
	c.Report(now, false, &rep)
	is, at := arith.Of(r), arith.Span{NS: now}
	if rep.Back != (arith.Span{}) && at.Less(s.tat) && (s.waiting <= now || !rep.BackTop.Less(is.Sub(s.tat, at))) {
		s.tat, s.gen = is.Sub(s.tat, rep.Back), max(s.gen+1, now/1000)
		s.waiting = min(s.waiting, max(now, is.Sub(s.tat, is.Full).NS+1000))
	}
	if rep.Units > 0 {
		s.born = max(now/1000, s.gen)
		s.tat = is.Add(s.tat, is.Cost(rep.Units)).Max(is.Add(at, rep.Ahead))
	}
	if rep.Waits > 0 {
		s.waiting = max(s.waiting, now+int64(rep.Waits))
	}
	a := report.Answer{Rule: r, At: now, ServerNow: now, Slack: 1, State: report.State{Gen: s.gen, Born: s.born, Level: is.Diff(s.tat, at)}}
	if s.waiting > now {
		a.Waiting = (s.waiting + 999) / 1000
	}
	c.Settle(now, a)
}

// heard returns a counter that has heard of a shelf.
func (s *shelf) heard(r *limit.Rule, now int64) *Counter {
	link := newTestLink()
	link.Part(1).SetOffset(0, 1)
	c := NewAlone("k", r, link, now)
	s.exchange(c, r, now)
	return c
}

// Two nodes reserve, cancel and refund, and report each step: at no instant, and in no interval, are more units
// usable than the capacity and what leaks meanwhile, and one more, because levels are known to 1 ns.
//
// Fault 79: reservations of other nodes behind and between.
func TestHandedBackByTwoNodes(t *testing.T) {
	r := limit.Must(limit.TokenBucket("k", 10, 10*time.Second, 20))
	for seed := range uint64(3000) {
		s, now := new(shelf), start.UnixNano()
		var nodes [2]*wasteful
		for i := range nodes {
			nodes[i] = &wasteful{rng: rand.New(rand.NewPCG(seed, uint64(i))), c: s.heard(r, now), r: r}
		}
		rng := rand.New(rand.NewPCG(seed, 11))
		for range 40 {
			m := nodes[rng.IntN(2)]
			m.now = now + 2000
			s.exchange(m.c, r, m.now)
			m.step()
			now = m.now
			s.exchange(m.c, r, now)
		}
		spared := limit.Must(limit.TokenBucket("k", 10, 10*time.Second, 21))
		neverTooMuch(t, spared, slices.Concat(nodes[0].uses, nodes[1].uses))
	}
}

// What is in use comes back as far as it counts, however many have waited behind it and given up, and not at the
// expense of those of another node.
func TestCancelledBeforeOthers(t *testing.T) {
	r, now := limit.Must(limit.TokenBucket("k", 10, time.Second, 100)), start.UnixNano()
	reserve := func(c *Counter, n int64) *Booking {
		_, b, _ := c.Reserve(now, n, r, Terms{MaxDelay: int64(time.Minute)})
		return b
	}
	for _, shared := range []bool{false, true} {
		c, _ := newAnswered(t, r, shared, now)
		c.Take(now, 90, r)
		used := reserve(c, 10)
		for range 3 {
			c.Cancel(now, r, reserve(c, 50))
		}
		if back, _, _ := c.Cancel(now+int64(time.Second), r, used); back != 10 {
			t.Errorf("shared %v: %d of 10 units come back", shared, back)
		}
	}
	none := NewAlone("k", r, nil, now)
	if back, _, _ := none.Cancel(now+1, r, reserve(none, 0)); back != 0 {
		t.Errorf("%d of 0 units come back", back)
	}
	s := new(shelf)
	a, b := s.heard(r, now), s.heard(r, now)
	a.Take(now, 100, r)
	s.exchange(a, r, now)
	first := reserve(a, 40)
	s.exchange(a, r, now)
	s.exchange(b, r, now)
	if reserve(b, 50) == nil {
		t.Fatal("nothing is booked")
	}
	s.exchange(b, r, now)
	s.exchange(a, r, now)
	second := reserve(a, 30)
	if back, _, _ := a.Cancel(now, r, first); back != 0 {
		t.Errorf("%d units before those of another node come back", back)
	}
	if back, _, _ := a.Cancel(now, r, second); back != 30 {
		t.Errorf("%d of 30 units behind them come back", back)
	}
	// Another node hands back what was before a reservation: its units leave earlier.
	small := limit.Must(limit.TokenBucket("k", 1, time.Second, 20))
	s = new(shelf)
	a, b = s.heard(small, now), s.heard(small, now)
	b.Take(now, 10, small)
	s.exchange(b, small, now)
	s.exchange(a, small, now)
	_, booked, _ := a.Reserve(now, 5, small, Terms{})
	s.exchange(a, small, now)
	now += int64(time.Millisecond)
	b.Refund(now, 10, small)
	s.exchange(b, small, now)
	s.exchange(a, small, now)
	a.Take(now+int64(7*time.Second), 10, small)
	if back, _, _ := a.Cancel(now+int64(7*time.Second), small, booked); back != 0 {
		t.Errorf("%d units come back that have left", back)
	}
	// A smaller limit does not let anybody in before those who wait by the larger one.
	ten, two := funnelRule(t, 10, 1, time.Second), funnelRule(t, 2, 1, time.Second)
	c, _ := newAnswered(t, ten, true, now)
	c.Take(now, 10, ten)
	c.Reserve(now, 10, ten, Terms{MaxDelay: int64(time.Minute)})
	if back, _, _ := c.Refund(now, 10, two); back != 0 {
		t.Errorf("%d units before those who wait come back", back)
	}
}
