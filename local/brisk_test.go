package local

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter that answers briskly is in all one that looks at everything: whatever
// happens to two of the same history, of which one may be brisk, they say the same
// and are the same.
func TestBriskIsTheSame(t *testing.T) {
	rules := []*limit.Rule{
		funnelRule(t, 1000, 7, 3*time.Millisecond), funnelRule(t, 5, 1000, time.Second),
		funnelRule(t, 1_000_000, 1_000_000, time.Second), windowRule(t, 1000, time.Second, 10),
	}
	for i, r := range rules {
		for _, linked := range []bool{false, true} {
			brisk := 0
			for seed := range uint64(60) {
				brisk += briskly(t, r, linked, seed)
				if t.Failed() {
					t.Fatalf("rule %d, %v, linked %v, seed %d", i, r, linked, seed)
				}
			}
			if brisk < 2000 {
				t.Errorf("%v, linked %v: %d brisk answers", r, linked, brisk)
			}
		}
	}
}

// same is a counter with a link of its own.
type same struct {
	c    *Counter
	link *Link
	late []Report // sent, not answered
}

func newSame(r *limit.Rule, linked bool, now int64) *same {
	s := new(same)
	if linked {
		s.link = newTestLink()
	}
	s.c = newCounter("k", r, 0, s.link, now)
	if linked {
		s.c.Shard(func(string) int { return 1 })
	}
	return s
}

// briskly leads two counters through the same history, and returns how often one of
// them was brisk when it was asked.
func briskly(t *testing.T, r *limit.Rule, linked bool, seed uint64) (brisk int) {
	rng := rand.New(rand.NewPCG(seed, 11))
	now, epoch := int64(1e12), uint8(0)
	both := [2]*same{newSame(r, linked, now), newSame(r, linked, now)}
	other := changed(r)
	for range 600 {
		now += rng.Int64N(1<<rng.IntN(31)) - rng.Int64N(1000)
		event, n := rng.IntN(60), int64(1)
		x, flip := rng.Int64N(1<<rng.IntN(11))+1, rng.IntN(2) == 0
		if rng.IntN(8) == 0 {
			n = rng.Int64N(3)
		}
		var got [2]struct {
			allowed bool
			src     limit.Source
			how     manner
		}
		if event == 0 {
			epoch++
		}
		for i, s := range both {
			rule := r
			s.suffer(event, now, x, flip, r)
			if event == 1 {
				rule = other
			}
			g := &got[i]
			if i == 0 {
				if s.c.brisk != 0 && n == 1 {
					brisk++
				}
			} else {
				s.c.brisk = 0
			}
			g.allowed, g.src, g.how = s.c.check(now, n, rule, epoch)
			if g.how == steady {
				g.how = well
			}
		}
		if got[0] != got[1] {
			t.Errorf("%d units at %d: %+v, looking at everything %+v", n, now, got[0], got[1])
		}
		compare(t, both[0].c, both[1].c)
	}
	return brisk
}

// changed returns another rule of the name and algorithm of r.
func changed(r *limit.Rule) *limit.Rule {
	if r.Algorithm() == limit.AlgorithmFunnel {
		return limit.Must(limit.Funnel(r.Name(), r.Limit()*2, 3, 2*time.Millisecond))
	}
	return limit.Must(limit.SlidingWindowBuckets(r.Name(), r.Limit()*2, 2*r.Period(), 7))
}

// suffer lets something happen to the counter, as the number says.
func (s *same) suffer(event int, now, x int64, flip bool, r *limit.Rule) {
	c := s.c
	switch event {
	case 2:
		c.refund(now, x, r)
	case 3:
		c.ask(now, x, r, flip, 0)
	}
	if s.link == nil {
		return
	}
	switch event {
	case 4:
		s.link.SetMode(x%4-1, flip)
	case 5:
		s.link.SetMode(1, false)
	case 6, 7, 8:
		s.link.Drain(func(c *Counter, urgent bool) {
			if rep, ok := c.Collect(now, urgent); ok {
				s.late = append(s.late, rep)
			}
		})
	case 9, 10, 11:
		if len(s.late) > 0 {
			rep := s.late[0]
			s.late = s.late[1:]
			off, _ := c.part().clock()
			a := Answer{Rule: rep.Rule, At: now, ServerNow: now + off, Level: limit.Span{NS: x * 1e6}}
			if r.Algorithm() != limit.AlgorithmFunnel {
				a.Buckets = []Bucket{{ID: (now+off)/int64(r.Width()) - x%12, Units: x % r.Limit()}}
			}
			c.Settle(now, a)
		}
	case 12:
		if len(s.late) > 0 {
			s.late = nil
			c.Quarantine(flip)
		}
	case 13:
		s.link.SetNodes(x)
		c.Unsynced()
	case 14, 15:
		off := x * 1e9
		if flip {
			off = 0
		}
		s.link.Part(1).SetOffset(off, x%8-1)
		if c.denied.Load() != 0 {
			c.Unsynced() // a refusal is told of it later
		}
	}
}

// compare fails the test unless two counters are alike in all that a brisk answer
// may touch, or should not.
func compare(t *testing.T, a, b *Counter) {
	t.Helper()
	v, w := a.win(), b.win() // unfolded
	if a.funnel.view != b.funnel.view || a.funnel.pend != b.funnel.pend || a.funnel.known != b.funnel.known {
		t.Errorf("%+v, looking at everything %+v", a.funnel, b.funnel)
	}
	if w != nil {
		type counts struct{ off, cur, end, newer, oldest, pending int64 }
		of := func(w *window) counts { return counts{w.off, w.cur, w.end, w.newer, w.oldest, w.pendUnits} }
		if of(v) != of(w) || !slices.Equal(v.pend, w.pend) {
			t.Errorf("%+v %d, looking at everything %+v %d", of(v), v.pend, of(w), w.pend)
		}
	}
	type flags struct {
		outdated, inNormal, inUrgent, inFlight, quarantined bool
		last, mode                                          int64
		epoch                                               uint8
	}
	of := func(c *Counter) flags {
		return flags{c.is(outdated), c.is(inNormal), c.is(inUrgent), c.is(inFlight), c.is(quarantined), c.last, c.mode(), c.epoch}
	}
	if of(a) != of(b) {
		t.Errorf("%+v, looking at everything %+v", of(a), of(b))
	}
}
