package counter

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// An outage that begins while much is unreported must not lock a key for as
// many drains as there are nodes.
func TestFairShareDebtIsBounded(t *testing.T) {
	r := funnelRule(t, 100, 100, time.Second)
	link := newTestLink()
	now := int64(1e15)
	c := NewAlone("k", r, link, now)
	for range 100 {
		c.allow(now, 1, r)
	}
	link.SetMode(50, true)
	if res, _ := c.take(now, 1, r); res.Allowed || res.RetryAfter > time.Second {
		t.Errorf("50 nodes, 100 units unreported: %+v, want a retry within a drain", res)
	}
}

// Units that another shape of the rule has no place for are expired, not lost.
func TestReshapeCountsWhatItDrops(t *testing.T) {
	link := newTestLink()
	now := int64(1e15)
	c := NewAlone("k", windowRule(t, 100, 10*time.Second, 10), link, now)
	for range 50 {
		c.allow(now, 1, c.Rule())
	}
	c.allow(now+int64(5*time.Second), 1, windowRule(t, 100, time.Second, 10))
	if c.unsyncedUnits() != 1 || link.Expired.Load() != 50 {
		t.Errorf("%d units pending, %d expired, want 1 and 50", c.unsyncedUnits(), link.Expired.Load())
	}
}

// Two shapes of one leaky bucket asked in turn (two versions of a program share a
// limiter's state) must not round each other up for ever.
//
// Fault 47: two shapes in turn do not round each other up.
func TestAlternatingShapesDrain(t *testing.T) {
	a, b := funnelRule(t, 10, 1, time.Second), funnelRule(t, 10, 1, 2*time.Second)
	now := int64(1e15)
	c := NewAlone("k", a, nil, now)
	got := 0
	for i := range 100_000 { // 1,000 s
		now += int64(10 * time.Millisecond)
		r := a
		if i%2 == 1 {
			r = b
		}
		if ok, _, _ := c.allow(now, 1, r); ok {
			got++
		}
	}
	if got < 500 || got > 1010 {
		t.Errorf("%d admitted in 1,000 s at 1 and ½ per second", got)
	}
}

// A foreign clock that shows a time before 1970 counts as 1970: an unused
// counter is unused, not full.
func TestClockBefore1970(t *testing.T) {
	for _, r := range []*limit.Rule{funnelRule(t, 5, 5, time.Minute), windowRule(t, 5, time.Minute, 10)} {
		now := -int64(10 * 365 * 24 * time.Hour)
		c := NewAlone("k", r, nil, now)
		for i := range 6 {
			if ok, _, _ := c.allow(now, 1, r); ok != (i < 5) {
				t.Errorf("%v: call %d in 1960: %v", r, i, ok)
			}
		}
	}
}

// The authority's clock is set back: what lies ahead of it counts as current.
func TestClockOfTheAuthoritySetBack(t *testing.T) {
	link := newTestLink()
	part := link.Part(1)
	part.SetOffset(0, 0)
	r := limit.Must(limit.SlidingWindowBuckets("r", 10, 10*time.Second, 10))
	now := int64(1e18)
	c := NewAlone("k", r, link, now)
	for range 3 {
		c.allow(now, 2, r)
		now += int64(time.Second)
	}
	for _, back := range []time.Duration{2 * time.Second, 5 * time.Second, time.Hour} {
		part.SetOffset(-int64(back), 0)
		if res, _ := c.take(now, 0, r); res.Remaining != 4 {
			t.Errorf("set back by %v: %d remain of 4", back, res.Remaining)
		}
	}
	part.SetOffset(0, 0) // and forward again: an hour later
	if res, _ := c.take(now, 0, r); res.Remaining != 10 {
		t.Errorf("set forward by an hour: %d remain of 10", res.Remaining)
	}
}

// An answer from before the authority's clock was set back, that arrives after
// one from since then, does not take the window to a time that has not come.
func TestLateAnswerFromBeforeTheClockWasSetBack(t *testing.T) {
	link := newTestLink()
	part := link.Part(1)
	part.SetOffset(0, 0)
	r := limit.Must(limit.FixedWindow("r", 10, 10*time.Second))
	now := int64(1e18) + int64(time.Second)
	c := NewAlone("k", r, link, now)
	settle := func(server, units int64) {
		c.Refresh()
		c.asks(t, now)
		now += int64(time.Millisecond)
		bucket := report.Bucket{ID: server / int64(10*time.Second), Units: units}
		c.Settle(now, report.Answer{Rule: r, State: report.State{Buckets: []report.Bucket{bucket}}, At: now, ServerNow: server, Slack: 1})
		now += int64(time.Second)
	}
	settle(now, 2)
	before := now
	part.SetOffset(-int64(7*time.Second), 0)
	settle(before, 2)
	settle(now-int64(7*time.Second), 6)
	if res, _ := c.take(now, 0, r); res.Remaining > 4 {
		t.Errorf("%d remain of 10, the authority counts 6", res.Remaining)
	}
}

// A window that has gone back does not know any more in which buckets the
// authority counts: it neither restores what it knows there, nor takes another
// distribution for a loss.
func TestWindowThatWentBackRestoresNothing(t *testing.T) {
	link := newTestLink()
	part := link.Part(1)
	part.SetOffset(0, 0)
	r := limit.Must(limit.SlidingWindowBuckets("r", 100, 10*time.Second, 10))
	now := int64(1e18) + int64(100*time.Millisecond)
	c := NewAlone("k", r, link, now)
	id := now / int64(time.Second)
	known := []report.Bucket{{ID: id - 1, Units: 20}, {ID: id, Units: 30}}
	answer := func(server int64, buckets []report.Bucket) Outcome {
		c.Refresh()
		c.asks(t, now)
		now += int64(time.Millisecond)
		return c.Settle(now, report.Answer{Rule: r, State: report.State{Buckets: buckets}, At: now, ServerNow: server, Slack: 1})
	}
	answer(now, known)
	part.SetOffset(-int64(time.Second), 0)
	if res, _ := c.take(now, 0, r); res.Remaining != 50 {
		t.Errorf("%d remain of 50", res.Remaining)
	}
	c.MarkRestore(now)
	rep, ok := c.collect(now, Normal)
	if !ok || !rep.Restore || len(rep.Known.Buckets) != 0 {
		t.Errorf("it reports %+v", rep)
	}
	// By its clock of now the authority has all of it in one bucket.
	one := []report.Bucket{{ID: id - 1, Units: 50}}
	out := c.Settle(now, report.Answer{Rule: r, Restored: true, State: report.State{Buckets: one}, At: now, ServerNow: now - int64(time.Second), Slack: 1})
	if res, _ := c.take(now, 0, r); out.Lost || res.Remaining != 50 {
		t.Errorf("lost: %v, %d remain of 50", out.Lost, res.Remaining)
	}
	if out = answer(now-int64(time.Second), known[:1]); !out.Lost {
		t.Error("a loss after that was not noticed")
	}
}

// A window that has had an answer since the authority's clock was set back knows in which
// buckets the authority counts, also when it is to be asked again. What is missing is lost.
//
// Fault 78: what was answered since is no less than what Redis must have.
func TestLossAfterTheClockWasSetBack(t *testing.T) {
	again := map[string]func(c *Counter, now int64) int64{
		"refreshed": func(c *Counter, now int64) int64 { c.Refresh(); return now },
		"idle":      func(c *Counter, now int64) int64 { return now + c.Lag() },
	}
	for name, wait := range again {
		link := newTestLink()
		part := link.Part(1)
		part.SetOffset(0, 0)
		r := limit.Must(limit.SlidingWindowBuckets("r", 100, time.Hour, 10))
		id := int64(1e18) / int64(6*time.Minute)
		now := id*int64(6*time.Minute) + int64(time.Second)
		c := NewAlone("k", r, link, now)
		part.Step(-int64(time.Minute), now, now-int64(time.Minute)) // and put right
		ask := func(buckets []report.Bucket) Outcome {
			c.asks(t, now)
			return c.Settle(now, report.Answer{Rule: r, State: report.State{Buckets: buckets}, At: now, ServerNow: now, Slack: 1})
		}
		now++
		ask([]report.Bucket{{ID: id, Units: 30}})
		now = wait(c, now+1)
		if out := ask(nil); !out.Lost {
			t.Errorf("%s: a loss was not noticed", name)
		}
		if res, _ := c.take(now, 0, r); res.Remaining != 70 {
			t.Errorf("%s: %d remain of 70", name, res.Remaining)
		}
	}
}

// An exchange took long, and its answer was given earlier than it was taken to be. The next
// one is quick, and below what is known by that much: nothing was lost. What is below by more
// is.
func TestNoLossAfterASlowAnswer(t *testing.T) {
	const late = 100 * time.Millisecond
	r := limit.Must(limit.TokenBucket("r", 1, time.Second, 100))
	for _, lost := range []bool{false, true} {
		link := newTestLink()
		now := int64(1e18)
		c := NewAlone("k", r, link, now)
		full := now + int64(10*time.Second) // when the bucket will be empty
		ask := func(end, err time.Duration) Outcome {
			c.asks(t, now)
			now += int64(late)
			return c.Settle(now, report.Answer{
				Rule: r, State: report.State{Level: arith.Span{NS: end.Nanoseconds() - now + int64(err)}}, At: now, ServerNow: now - int64(err), Slack: int64(err + time.Millisecond), Late: int64(err),
			})
		}
		if out := ask(time.Duration(full), late); out.Lost {
			t.Fatal("the first answer shows a loss")
		}
		for range 2 { // what is known stands, and so does its error
			c.Refresh()
			if out := ask(time.Duration(full), 0); out.Lost {
				t.Error("an answer that was given earlier than known is taken for a loss")
			}
		}
		if lost {
			c.Refresh()
			if out := ask(time.Duration(full)-5*time.Millisecond, 0); !out.Lost {
				t.Error("a loss of more than the error was not noticed")
			}
		}
	}
}

// Units that were booked on a key before it broke were admitted after our clock
// had stood still. What is known from before that moves; they do not.
func TestBookedUnitsAfterTheClockStoodStill(t *testing.T) {
	link := newTestLink()
	r := limit.Must(limit.TokenBucket("r", 10, time.Second, 1000))
	now := int64(1e18)
	c := NewAlone("k", r, link, now)
	link.Part(1).SetOffset(0, 0)
	exchange := func(level arith.Span, end func()) {
		c.Refresh()
		c.asks(t, now)
		if end != nil {
			end()
			return
		}
		c.Settle(now, report.Answer{Rule: r, State: report.State{Level: level}, At: now, ServerNow: now, Slack: 1})
	}
	exchange(arith.Of(r).Cost(100), nil)
	link.SetLag(int64(20 * time.Second)) // all of them have leaked, but not here
	c.allow(now, 400, r)
	exchange(arith.Span{}, func() { c.Quarantine(now, true) })
	exchange(arith.Span{}, nil) // the key has been made anew
	if res, _ := c.take(now, 0, r); res.Remaining > 600 || res.Remaining < 590 {
		t.Errorf("%d remain of 1000, 400 were admitted just now", res.Remaining)
	}
}

// A window that does not know the authority's clock yet is set all the same. When
// that was, it learns later: that the authority counts nothing of it any more by
// then is no loss.
func TestSetBeforeTheClockIsKnown(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		link := newTestLink()
		r := limit.Must(limit.FixedWindow("r", 10, time.Second))
		now := int64(1e18)
		c := NewAlone("k", r, link, now)
		server := now + int64(ahead)
		c.Renew(now, r, report.Answer{State: report.State{Gen: 5, Buckets: []report.Bucket{{ID: server / int64(time.Second), Units: 10}}}, At: now, ServerNow: server})
		if res, _ := c.take(now, 1, r); res.Allowed {
			t.Errorf("clock ahead by %v: set to 10 of 10, and one more was admitted", ahead)
		}
		c.asks(t, now)
		server += int64(2 * time.Second) // the answer was on its way for so long
		link.Part(1).SetOffset(server-now, 1)
		out := c.Settle(now, report.Answer{Rule: r, State: report.State{Gen: 5}, At: now, ServerNow: server, Slack: 1})
		if res, _ := c.take(now, 0, r); out.Lost || res.Remaining != 10 {
			t.Errorf("clock ahead by %v: lost: %v, %d remain of 10", ahead, out.Lost, res.Remaining)
		}
	}
}

// The authority keeps a generation for a horizon by its own clock, whatever ours
// shows. A node that insisted on one after that would undo what the others have
// reported since; one that gave it up before would forget a reset.
func TestGenerationIsOutgrownByTheAuthoritysClock(t *testing.T) {
	for _, r := range []*limit.Rule{
		limit.Must(limit.TokenBucket("f", 1, time.Second, 10)), limit.Must(limit.FixedWindow("x", 10, 10*time.Second)),
	} {
		for _, test := range []struct{ ours, theirs time.Duration }{
			{11 * time.Second, 11 * time.Second}, {9 * time.Second, 11 * time.Second}, {11 * time.Second, 9 * time.Second},
		} {
			link := newTestLink()
			now, server := int64(1e18), int64(1e18)
			link.Part(1).SetOffset(0, 1)
			c := NewAlone("k", r, link, now)
			answer := func(gen int64) (rep report.Report) {
				c.Refresh()
				c.asks(t, now)
				rep = c.resend(now, false)
				c.Settle(now, report.Answer{Rule: r, Restored: rep.Restore, State: report.State{Gen: gen}, At: now, ServerNow: server, Slack: 1})
				return rep
			}
			answer(7)
			now, server = now+int64(test.ours), server+int64(test.theirs)
			link.Part(1).SetOffset(server-now, 1)
			rep := c.resend(now, true) // something else has been lost
			if outgrown := test.theirs > arith.Of(r).Horizon(); outgrown != (rep.Known.Gen == 0) {
				t.Errorf("%v, %v: generation %d is reported anew", r, test, rep.Known.Gen)
			}
			c.unmark(restoring)
			answer(0)
			if rep = answer(0); rep.Restore != (test.theirs <= arith.Of(r).Horizon()) {
				t.Errorf("%v, %v: insists on its generation: %v", r, test, rep.Restore)
			}
		}
	}
}

// Two readings of the clock are never taken at once. That is no reason to remember
// more of a key than its count.
func TestSettledCountersAreSmall(t *testing.T) {
	for _, lag := range []time.Duration{-60, 127 * time.Microsecond, -3 * time.Millisecond} {
		link := newTestLink()
		c := NewAlone("k", funnelRule(t, 10, 1, time.Hour), link, 1e12)
		link.SetLag(int64(lag))
		for range 3 {
			c.allow(1e12, 1, c.Rule())
			rep, _ := c.collect(1e12, Normal)
			c.Settle(1e12, report.Answer{Rule: rep.Rule, State: report.State{Level: rep.Ahead}, At: 1e12, ServerNow: 1e12})
		}
		if c.history != nil || fmt.Sprint(field(c.leaky(), "rare")) != "<nil>" {
			t.Errorf("lag %v: %+v, %+v", lag, c.past(), c.leaky())
		}
	}
}

// The authority says since when a leaky bucket has been empty. Units that are reported late
// go on from there: to know it as empty just now would make the next answer look like a
// loss, and restore what was not lost.
func TestLateUnitsAfterAnEmptyAnswer(t *testing.T) {
	r := limit.Must(limit.TokenBucket("f", 1, time.Second, 10))
	link, now, second := newTestLink(), int64(1e12), int64(time.Second)
	c := NewAlone("k", r, link, now)
	c.allow(now, 1, r)
	c.asks(t, now)
	c.allow(now, 5, r)
	now += 3 * second // the exchange takes long, the leaky bucket ran empty 2 s ago
	c.Settle(now, report.Answer{Rule: r, State: report.State{Level: arith.Span{NS: -2 * second}}, At: now, ServerNow: now, Slack: 1})
	if rep, ok := c.collect(now, Normal); !ok || rep.Units != 5 || rep.Ahead.NS != 2*second {
		t.Fatalf("%+v", rep)
	}
	out := c.Settle(now, report.Answer{Rule: r, State: report.State{Level: arith.Span{NS: 3 * second}}, At: now, ServerNow: now, Slack: 1})
	if rep := c.resend(now, true); out.Lost || rep.Known.Level.NS != 3*second {
		t.Errorf("lost %v, known %v", out.Lost, rep.Known.Level)
	}
	now += 5 * second
	if rep := c.resend(now, true); rep.Known.Level.NS != -2*second {
		t.Errorf("known %v", rep.Known.Level)
	}
}
