package counter

import (
	"runtime"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// grantAt is the time at which the tests of grants begin.
const grantAt = int64(1e12)

// byLease asks c for n units by its lease alone.
func byLease(c *Counter, r *limit.Rule, n, now int64) Verdict {
	_, _, v := c.entry.Take(1, r, n, now)
	return v
}

// drainLease takes single units until the lease does not answer, and returns how many.
func drainLease(c *Counter, r *limit.Rule, now int64) (n int64) {
	for byLease(c, r, 1, now) == Admitted {
		n++
	}
	return n
}

// newShared returns a counter of shard 1, whose clock is known, and its link.
func newShared(r *limit.Rule) (*Counter, *Link) {
	link := newTestLink()
	link.Part(1).SetOffset(0, 1)
	c := NewAlone("k", r, link, grantAt)
	return c, link
}

// answer has the authority answer what c reports.
func answer(t *testing.T, c *Counter, now int64, level arith.Span) {
	t.Helper()
	c.link().Drain(func(*Counter, bool) {})
	rep, ok := c.collect(now, Normal)
	if !ok {
		t.Fatal("reports nothing")
	}
	c.Settle(now, report.Answer{Rule: rep.Rule, At: now, ServerNow: now, State: report.State{Level: level, Buckets: rep.Buckets}})
}

// A counter that waits in the urgent queue enters it again each time its pending units have doubled, a
// few times at most. The unit that makes it do so is not on lease.
//
// Fault 94.
func TestReportOvertakes(t *testing.T) {
	for _, r := range []*limit.Rule{slow(10_000), windowRule(t, 10_000, time.Hour, 10)} {
		c, link := newShared(r)
		c.setUrgentAt(10)
		pushed := func() (times int, is Urgency) {
			link.Drain(func(c *Counter, urgent bool) {
				if urgent {
					times++
					is = c.Urgency()
				}
			})
			return times, is
		}
		c.Check(grantAt, int64(c.urgentAt), r)
		if n, is := pushed(); n != 1 || is.Pending != 10 || is.At != 10 {
			t.Errorf("%v: urgent %d times: %+v", r, n, is)
		}
		for _, next := range []int64{20, 40, 80} {
			if n, want := drainLease(c, r, grantAt), next/2-1; n != want {
				t.Errorf("%v: %d units on lease while an urgent report waits, want %d", r, n, want)
			}
			if n, _ := pushed(); n != 0 {
				t.Errorf("%v: urgent again before %d units", r, next)
			}
			c.Check(grantAt, 1, r)
			if n, is := pushed(); n != 1 || is.Pending != next {
				t.Errorf("%v: urgent %d times with %d units: %+v", r, n, next, is)
			}
		}
		most := 0
		for range 5000 {
			c.Check(grantAt, 1, r)
			n, _ := pushed()
			most += n
		}
		if most != mostDoublings-3 {
			t.Errorf("%v: 5000 units more make it urgent %d times", r, most)
		}
		if drainLease(c, r, grantAt) < 100 {
			t.Errorf("%v: no lease while a report waits that is as urgent as any", r)
		}
		c.Collect(grantAt, Normal)
		c.answered(grantAt, 0, nil)
		c.Check(grantAt, int64(c.urgentAt), r)
		if n, _ := pushed(); n != 1 {
			t.Errorf("%v: urgent %d times after a report", r, n)
		}
	}
}

// The first check that a lease admits after a report queues the counter for the next one, and
// wakes a reconciler that sleeps; the others do not. When the link is closed none does.
func TestLeasesQueueTheirCounter(t *testing.T) {
	for _, r := range []*limit.Rule{slow(100), windowRule(t, 100, time.Hour, 10)} {
		c, link := newShared(r)
		link.Part(1).SetOffset(0, 1)
		settle := func(units int64) {
			t.Helper()
			rep, _ := c.collect(grantAt, Normal)
			for i := range rep.Buckets {
				rep.Buckets[i].Units = units
			}
			c.Settle(grantAt, report.Answer{Rule: r, State: report.State{Level: arith.Of(r).Cost(units), Buckets: rep.Buckets}, At: grantAt, ServerNow: grantAt})
		}
		c.Check(grantAt, 1, r)
		settle(1)
		link.Drain(func(*Counter, bool) {})
		link.Sleep()
		c.mu.Lock() // as if the first check were interrupted before it could queue the counter
		first := make(chan Verdict)
		go func() { first <- byLease(c, r, 1, grantAt) }()
		for unitsOf(c.entry.word.Load()) == uint32(c.granted) {
			runtime.Gosched()
		}
		if c.entry.word.Load()&unqueued == 0 {
			t.Errorf("%v: the word says that the counter is queued, and it is not", r)
		}
		c.mu.Unlock()
		if v := <-first; v != Admitted {
			t.Fatalf("%v: %v", r, v)
		}
		for i := range 2 {
			if v := byLease(c, r, 1, grantAt+int64(i)); v != Admitted || !c.is(inNormal) || c.entry.word.Load()&unqueued != 0 {
				t.Fatalf("%v: %v, queued %v", r, v, c.is(inNormal))
			}
		}
		select {
		case <-link.Wake():
		default:
			t.Errorf("%v: the reconciler sleeps on", r)
		}
		if c.since != grantAt {
			t.Errorf("%v: units since %d, want %d", r, c.since, grantAt)
		}
		queued := 0
		link.Drain(func(is *Counter, urgent bool) {
			if queued++; is != c || urgent {
				t.Errorf("%v: %p is queued, urgent %v", r, is, urgent)
			}
		})
		if queued != 1 {
			t.Errorf("%v: queued %d times", r, queued)
		}
		settle(4)
		link.Close()
		if v := byLease(c, r, 1, grantAt); v != Admitted || c.is(inNormal) {
			t.Errorf("%v: %v after the link was closed, queued %v", r, v, c.is(inNormal))
		}
	}
}

// A lease that was revoked, so that the next check is noticed, is not granted by a report, nor by
// a look.
func TestRevokedUntilAsked(t *testing.T) {
	r := slow(100)
	c, _ := newShared(r)
	c.Check(grantAt, 1, r)
	c.Revoke(grantAt)
	answer(t, c, grantAt, arith.Of(r).Cost(1))
	c.Drop(Idle, grantAt)
	if v := byLease(c, r, 1, grantAt); v != Unanswered {
		t.Errorf("%v before the counter was asked", v)
	}
	c.Check(grantAt, 1, r)
	if v := byLease(c, r, 1, grantAt); v != Admitted {
		t.Errorf("%v after the counter was asked", v)
	}
}

// A look at a counter whose lease has ended makes no other, and one that is valid goes on.
func TestLooksMakeNoLeases(t *testing.T) {
	r := windowRule(t, 100, time.Hour, 10)
	c, link := newShared(r)
	link.Part(1).SetOffset(0, 1)
	c.Check(grantAt, 1, r)
	if c.Drop(Idle, grantAt); byLease(c, r, 1, grantAt) != Admitted {
		t.Error("a look has ended a lease")
	}
	link.SetMode(1, true)
	link.SetMode(1, false)
	if c.Drop(Idle, grantAt+int64(time.Minute)); c.granted != 0 {
		t.Error("a look has made a lease")
	}
}

// A leaky bucket that holds what others have admitted grants as any other. What it then has
// pending is no more than the units that it was asked for would be if they had come last.
func TestSharedFunnelGrants(t *testing.T) {
	r := slow(100)
	c, _ := newShared(r)
	c.Check(grantAt, 1, r)
	answer(t, c, grantAt, arith.Of(r).Cost(50))
	c.Check(grantAt, 1, r)
	now := grantAt
	for range 3 {
		now += int64(time.Minute)
		if byLease(c, r, 1, now) != Admitted {
			t.Fatal("a funnel with units of others does not grant")
		}
	}
	exact := arith.Span{NS: grantAt}
	for i := range int64(4) {
		exact = arith.Of(r).Add(exact.Max(arith.Span{NS: grantAt + i*int64(time.Minute)}), arith.Of(r).Cost(1))
	}
	c.lock(now)
	defer c.unlock()
	late := arith.Of(r).Add(arith.Of(r).Add(arith.Span{NS: grantAt}, arith.Of(r).Cost(4)), arith.Span{NS: now - grantAt})
	if p := c.leaky().Pend.TAT; p.Less(exact) || late.Less(p) || c.leaky().View.Less(p) {
		t.Errorf("pending until %v, want %v to %v, in a view until %v", p, exact, late, c.leaky().View)
	}
	want := arith.Of(r).Add(arith.Span{NS: grantAt}, arith.Of(r).Cost(54))
	if v := c.leaky().View; v != want || c.leaky().Pend.Units != 4 {
		t.Errorf("%d units pending, a view until %v, want 4 and %v", c.leaky().Pend.Units, v, want)
	}
}

// What is on lease is unsynced as soon as it is admitted.
func TestLeasedUnitsArePending(t *testing.T) {
	r := slow(100)
	c, _ := newShared(r)
	c.Check(grantAt, 1, r)
	answer(t, c, grantAt, arith.Of(r).Cost(1))
	c.Check(grantAt, 0, r) // is queued, and has consumed nothing
	if c.Pending() || c.Unsynced() != 0 {
		t.Fatalf("%d units pending", c.Unsynced())
	}
	for n := range int64(3) {
		byLease(c, r, 1, grantAt)
		if !c.Pending() || c.Unsynced() != n+1 {
			t.Errorf("pending %v, %d units, want %d", c.Pending(), c.Unsynced(), n+1)
		}
	}
	if rep, ok := c.collect(grantAt, Normal); !ok || rep.Units != 3 {
		t.Errorf("reports %+v", rep)
	}
}

// A window on lease goes by the authority's clock as it was known when it was granted. A
// step of that clock ends the lease, and a call that only looks does not grant another by the
// reading of before.
func TestLeasesEndWithTheClock(t *testing.T) {
	r := windowRule(t, 100, time.Hour, 10)
	c, link := newShared(r)
	c.Check(grantAt, 1, r)
	link.Part(1).SetOffset(algorithm.ClockStep/2, 1)
	if v := byLease(c, r, 1, grantAt); v != Admitted {
		t.Errorf("%v after a reading as good as the one before", v)
	}
	off := int64(time.Hour)
	link.Part(1).SetOffset(off, 1)
	if v := byLease(c, r, 1, grantAt); v != Unanswered {
		t.Errorf("%v after the clock was set", v)
	}
	c.lock(grantAt)
	c.unlock()
	if v := byLease(c, r, 1, grantAt); v != Unanswered {
		t.Errorf("%v by the clock of before", v)
	}
	c.Check(grantAt, 1, r)
	if v := byLease(c, r, 1, grantAt); v != Admitted || number(c.window(), "off") != off {
		t.Errorf("%v by the clock as it is, %d ahead", v, number(c.window(), "off"))
	}
	if n := c.Unsynced(); n != 4 {
		t.Errorf("%d units unsynced, want 4", n)
	}
}

func queueOf(urgent bool) Queue {
	if urgent {
		return Urgent
	}
	return Normal
}
