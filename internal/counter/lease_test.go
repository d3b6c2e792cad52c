package counter

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter that grants leases is in all one that does not: whatever happens to two of
// the same history, they say the same and are the same.
func TestLeasesAreTheSame(t *testing.T) {
	rules := []*limit.Rule{
		funnelRule(t, 1000, 7, 3*time.Millisecond), funnelRule(t, 5, 1000, time.Second), funnelRule(t, 0, 1, time.Second),
		funnelRule(t, 1_000_000, 1_000_000, time.Second), windowRule(t, 10, 100*time.Millisecond, 10),
		windowRule(t, 1000, 10*time.Second, 10), windowRule(t, 60, time.Hour, 1),
	}
	for i, r := range rules {
		for _, linked := range []bool{false, true} {
			answers, units := 0, int64(0)
			for seed := range uint64(60) {
				a, u := leased(t, r, linked, seed)
				answers, units = answers+a, units+u
				if t.Failed() {
					t.Fatalf("rule %d, %v, linked %v, seed %d", i, r, linked, seed)
				}
			}
			if answers < 500 || r.Limit() > 10 && units < 300 {
				t.Errorf("%v, linked %v: %d answers by leases, %d units admitted", r, linked, answers, units)
			}
		}
	}
}

// same is a counter with a link of its own.
type same struct {
	c    *Counter
	link *Link
	late []report.Report // sent, not answered
}

func newSame(r *limit.Rule, linked bool, now int64) *same {
	s := new(same)
	if linked {
		s.link = newTestLink()
	}
	s.c = NewAlone("k", r, s.link, now)
	return s
}

// leased leads two counters through the same history, of which one grants no leases, and
// returns how many checks were decided by leases, and how many units these have admitted.
func leased(t *testing.T, r *limit.Rule, linked bool, seed uint64) (answers int, units int64) {
	rng := rand.New(rand.NewPCG(seed, 12))
	now := int64(1e12)
	both := [2]*same{newSame(r, linked, now), newSame(r, linked, now)}
	both[1].c.entry = nil
	other := changed(r)
	for range 600 {
		now += rng.Int64N(1 << rng.IntN(31))
		event := rng.IntN(60)
		x, flip, n := rng.Int64N(1<<rng.IntN(11))+1, rng.IntN(2) == 0, int64(1)
		if rng.IntN(4) == 0 {
			n = rng.Int64N(12)
		}
		rule := r
		if event == 1 {
			rule = other
		}
		if event < 20 || rng.IntN(8) == 0 {
			align(t, both[0].c, both[1].c, now)
		}
		for _, s := range both {
			s.apply(event, now, x, flip, r)
		}
		allowed, src, byLease, ok := both[0].c.Allow(now, n, rule)
		want, wantSrc, _ := both[1].c.Check(now, n, rule)
		if !ok || allowed != want || src != wantSrc {
			t.Errorf("%d at %d: %v as %v, without leases %v as %v", n, now, allowed, src, want, wantSrc)
		}
		if byLease {
			answers++
			if allowed {
				units += n
			}
		}
	}
	return answers, units
}

// align ends the lease of a, and fails the test unless it is like b. A lease does not
// say when units came: what it leaves open is taken over from b.
func align(t *testing.T, a, b *Counter, now int64) {
	t.Helper()
	a.lock(now)
	defer a.unlock()
	b.lock(now)
	defer b.unlock()
	if a.last > b.last {
		t.Errorf("asked at %d, without leases at %d", a.last, b.last)
	}
	if f, g := a.leaky(), b.leaky(); f != nil {
		if p, q := f.Pend.TAT, g.Pend.TAT; p.Less(q) || f.View.Less(p) && p != q {
			t.Errorf("pending until %v, without leases %v, of %v", p, q, f.View)
		}
		f.Pend.TAT = g.Pend.TAT
	}
	a.last = b.last
	if a.window() != nil {
		a.rollLocked(now) // a lease that refuses does not
		b.rollLocked(now)
	}
	compare(t, a, b)
}

// changed returns another rule of the name and algorithm of r.
func changed(r *limit.Rule) *limit.Rule {
	if arith.Of(r).Algorithm == arith.TokenBucket {
		return limit.Must(limit.TokenBucket(r.Name(), 3, 2*time.Millisecond, r.Limit()*2))
	}
	return limit.Must(limit.SlidingWindowBuckets(r.Name(), r.Limit()*2, 2*r.Period(), 7))
}

// apply applies the event of a number to the counter.
func (s *same) apply(event int, now, x int64, flip bool, r *limit.Rule) {
	c := s.c
	switch event {
	case 2:
		c.Refund(now, x, r)
	case 3:
		c.Ask(now, x, r, flip)
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
			if rep, ok := c.collect(now, queueOf(urgent)); ok {
				s.late = append(s.late, rep)
			}
		})
	case 9, 10, 11:
		if len(s.late) > 0 {
			rep := s.late[0]
			s.late = s.late[1:]
			off, _ := c.part.clock()
			a := report.Answer{Rule: rep.Rule, At: now, ServerNow: now + off, State: report.State{Level: arith.Span{NS: x * 1e6}}}
			if arith.Of(r).Algorithm != arith.TokenBucket {
				a.Buckets = []report.Bucket{{ID: (now+off)/int64(arith.Of(r).Width) - x%12, Units: x % r.Limit()}}
			}
			c.Settle(now, a)
		}
	case 12:
		if len(s.late) > 0 {
			s.late = nil
			c.Quarantine(now, flip)
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
	}
}

// compare fails the test unless two counters are alike in all that a lease may touch, or
// should not.
func compare(t *testing.T, a, b *Counter) {
	t.Helper()
	f, g := a.leaky(), b.leaky()
	if f != nil && (f.View.Max(arith.Span{NS: a.last}) != g.View.Max(arith.Span{NS: b.last}) || f.Pend != g.Pend || f.Known != g.Known) {
		t.Errorf("%+v, without leases %+v", f, g)
	}
	if v, w := a.window(), b.window(); w != nil {
		for _, name := range []string{"off", "cur", "newer", "multiplier", "pendUnits", "sentUnits", "list"} {
			if is, want := fmt.Sprint(field(v, name)), fmt.Sprint(field(w, name)); is != want {
				t.Errorf("%s: %s, without leases %s", name, is, want)
			}
		}
	}
	type flags struct {
		outdated, inNormal, inUrgent, inFlight, quarantined bool
		last, mode                                          int64
	}
	of := func(c *Counter) flags {
		return flags{c.is(outdated), c.is(inNormal), c.is(inUrgent), c.is(inFlight), c.is(quarantined), c.last, c.mode()}
	}
	if of(a) != of(b) {
		t.Errorf("%+v, without leases %+v", of(a), of(b))
	}
}

// A refusal lasts until there may be room again, and not longer than 10 seconds, or a lag
// for a key that is shared.
func TestRefusalsEndInTime(t *testing.T) {
	for _, r := range []*limit.Rule{
		funnelRule(t, 1, 1, 5*time.Millisecond), funnelRule(t, 1, 1, 300*time.Millisecond), funnelRule(t, 1, 1, 4*time.Second), funnelRule(t, 1, 1, time.Hour),
		windowRule(t, 1, 5*time.Millisecond, 2), windowRule(t, 1, 4*time.Second, 2), windowRule(t, 1, time.Hour, 2),
	} {
		refusalEnds(t, r, nil, 10*time.Second)
		link := newTestLink()
		refusalEnds(t, r, link, time.Duration(link.pace.lag(arith.Of(r))))
	}
}

func refusalEnds(t *testing.T, r *limit.Rule, link *Link, most time.Duration) {
	t.Helper()
	now := int64(1e12)
	c := NewAlone("k", r, link, now)
	c.allow(now, 1, r)
	c.allow(now, 1, r)
	retry, _ := c.peek(now, 1, r)
	end := now + int64(min(retry.RetryAfter, most)) // as the README says
	early := end - 1
	if arith.Of(r).Algorithm != arith.TokenBucket {
		early = now + 1 // the next bucket may make room, and does not here
	}
	for at, want := range map[int64]Verdict{now: Refused, early: Refused, end: Unanswered} {
		if _, _, v := c.entry.Take(1, r, 1, at); v != want {
			t.Errorf("%v: %v after now: %v, want %v", r, time.Duration(at-now), v, want)
		}
	}
	if _, _, v := c.entry.Take(1, r.DryRun(), 1, now); v != Unanswered {
		t.Errorf("%v: refuses another rule", r)
	}
}

// A lease ends, and is not for times from before it nor for other rules, sources and epochs.
func TestLeasesAreForSome(t *testing.T) {
	r, now := funnelRule(t, 5, 3, time.Second), int64(1e12)
	other := funnelRule(t, 6, 3, time.Second)
	epoch := new(epoch)
	l := newLease(leaseTerms{r, epoch, 3, limit.SourceSynced}, now)
	for what, fits := range map[string]bool{
		"a time before":     !l.fits(leaseTerms{r, epoch, 3, limit.SourceSynced}, l.base-1),
		"its beginning":     l.fits(leaseTerms{r, epoch, 3, limit.SourceSynced}, l.base),
		"half of its time":  l.fits(leaseTerms{r, epoch, 3, limit.SourceSynced}, l.base+l.span/2),
		"more":              !l.fits(leaseTerms{r, epoch, 3, limit.SourceSynced}, l.base+l.span/2+1),
		"another rule":      !l.fits(leaseTerms{other, epoch, 3, limit.SourceSynced}, now),
		"another source":    !l.fits(leaseTerms{r, epoch, 3, limit.SourceUnsynced}, now),
		"another shard":     !l.fits(leaseTerms{r, alone, 3, limit.SourceSynced}, now),
		"another epoch":     !l.fits(leaseTerms{r, epoch, 4, limit.SourceSynced}, now),
		"no lease":          !(*lease)(nil).fits(leaseTerms{r, epoch, 3, limit.SourceSynced}, now),
		"a moment before":   l.base < now && l.base >= now-leaseSlack,
		"room for its time": l.span*l.perNS <= timeMost/2,
	} {
		if !fits {
			t.Errorf("%s: wrong", what)
		}
	}
	epoch.n.Store(3)
	w := newWord(0, 10)
	for at, want := range map[int64]Verdict{l.base - 1: Unanswered, l.base: Admitted, l.base + l.span - 1: Admitted, l.base + l.span: Unanswered} {
		if _, _, v := l.decide(w, 1, at); v != want {
			t.Errorf("%v at %d of %d", v, at-l.base, l.span)
		}
	}
}

// Keys of one rule share a lease; two rules that meet in one cell have each their own.
func TestLeasesAreShared(t *testing.T) {
	var g Group
	r, now := funnelRule(t, 5, 3, time.Second), int64(1e12)
	of := func(r *limit.Rule, at int64) *lease {
		return g.lease(leaseTerms{r, alone, 0, limit.SourceLocal}, at, 0)
	}
	l := of(r, now)
	if of(r, now+1) != l || of(r, now-leaseSlack/2) != l {
		t.Error("not shared by keys that are asked soon after another")
	}
	var other *limit.Rule
	for i := int64(6); other == nil; i++ {
		if o := limit.Must(limit.TokenBucket("other", 3, time.Second, i)); arith.Of(o).Hash%leaseCells == arith.Of(r).Hash%leaseCells {
			other = o
		} else if o = limit.Must(limit.TokenBucket(fmt.Sprint(i), 3, time.Second, 5)); arith.Of(o).Hash%leaseCells == arith.Of(r).Hash%leaseCells {
			other = o
		}
	}
	if got := of(other, now); got.rule != other {
		t.Errorf("%v is given the lease of %v", other, got.rule)
	}
	if got := of(r, now); got.rule != r {
		t.Errorf("%v is given the lease of %v", r, got.rule)
	}
}

// A counter knows by the word of a leaky bucket how late it was asked at the least: what was
// admitted could not have been before.
func TestLeasesKnowTheTime(t *testing.T) {
	r, now := funnelRule(t, 5, 1, time.Second), int64(1e12)
	c := NewAlone("k", r, nil, now)
	c.Check(now, 1, r)
	later := now + int64(time.Hour)
	for range 5 {
		byLease(c, r, 1, later)
	}
	c.lock(now) // by a check whose clock was read an hour ago
	defer c.unlock()
	if c.last != later {
		t.Errorf("asked at %v, want %v", c.last-now, later-now)
	}
}
