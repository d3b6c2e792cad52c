package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// version is content of some generation.
type version struct{ gen, born, units int64 }

// answer is what the authority says if it has a version.
func (v version) answer(r *limit.Rule, now int64) report.Answer {
	a := report.Answer{Rule: r, State: report.State{Gen: v.gen, Born: v.born, Level: arith.Of(r).Cost(v.units)}, At: now, ServerNow: now, Slack: 1}
	if arith.Of(r).Algorithm != arith.TokenBucket && v.units > 0 {
		a.Buckets = []report.Bucket{{ID: now / int64(arith.Of(r).Width), Units: v.units}}
	}
	return a
}

// unitsKnown returns how many units a report raises the authority to.
func unitsKnown(rep *report.Report, r *limit.Rule) (n int64) {
	if arith.Of(r).Algorithm == arith.TokenBucket {
		return arith.Of(r).Whole(rep.Known.Level)
	}
	for _, b := range rep.Known.Buckets {
		n += b.Units
	}
	return n
}

// What an answer says counts if it is of the generation that the counter knows of, or
// was born since that began; and the reverse. A counter that knows more says so.
//
// Fault 74: what a reset has cleared does not come back by way of an answer.
func TestAnswerOfAnotherGeneration(t *testing.T) {
	for _, r := range []*limit.Rule{
		limit.Must(limit.TokenBucket("f", 100, time.Hour, 100)), limit.Must(limit.SlidingWindow("w", 100, time.Hour)),
	} {
		for name, c := range map[string]struct {
			known, answered, want version
			raises                bool
		}{
			"the same":                         {version{5, 6, 10}, version{5, 7, 12}, version{5, 7, 12}, false},
			"the same, but less":               {version{5, 7, 12}, version{5, 6, 10}, version{5, 7, 12}, true},
			"a reset":                          {version{5, 6, 10}, version{9, 9, 2}, version{9, 9, 2}, false},
			"a reset that had been lost":       {version{5, 12, 10}, version{9, 9, 2}, version{9, 12, 10}, true},
			"before a reset":                   {version{9, 9, 2}, version{5, 6, 10}, version{9, 9, 2}, true},
			"before a reset to nothing":        {version{9, 9, 0}, version{0, 8, 10}, version{9, 9, 0}, true},
			"booked since by others":           {version{9, 9, 2}, version{0, 12, 10}, version{9, 12, 10}, true},
			"booked since by others, but less": {version{9, 9, 7}, version{0, 12, 3}, version{9, 12, 7}, true},
			"after the clock was set back":     {version{2e15, 2e15, 2}, version{0, 1e15, 10}, version{2e15, 2e15, 10}, true},
		} {
			link, now := newTestLink(), int64(1e18)
			link.Part(1).SetOffset(0, 1)
			k := NewAlone("k", r, link, now)
			for i, v := range []version{c.known, c.answered} {
				k.Refresh()
				k.asks(t, now)
				k.Settle(now, v.answer(r, now))
				if i == 0 && k.is(restoring) {
					t.Errorf("%v, %s: the first answer is a loss", r, name)
				}
			}
			raises := k.is(restoring)
			rep := k.resend(now, true)
			if got := (version{rep.Known.Gen, rep.Known.Born, unitsKnown(&rep, r)}); got != c.want || raises != c.raises {
				t.Errorf("%v, %s: knows %v and raises %v, want %v, %v", r, name, got, raises, c.want, c.raises)
			}
		}
	}
}

// Units were booked while Redis' clock was an hour ahead. The clock was put right, the key was lost, and another node has
// reset it. The reset is later than the units, although its time is not.
//
// Fault 74: a reset after Redis' clock was put right.
func TestResetAfterTheClockWasPutRight(t *testing.T) {
	for _, r := range smallRules(t) {
		k := NewAlone("k", r, hearing(t), noon)
		k.report(t, noon, 5, func(a *report.Answer) { a.Born = noonUS + time.Hour.Microseconds() })
		k.Refresh()
		k.report(t, noon+ms, 0, func(a *report.Answer) { a.Gen, a.Born = noonUS+1000, noonUS+1000 })
		if left := k.left(noon + ms); left != 10 || k.is(restoring) {
			t.Errorf("%v: %d left of 10, restores: %v", r, left, k.is(restoring))
		}
	}
}

// A flight that was booked before a Set, and whose answer was lost, is answered
// after it by what the Set has left: the flight's units are not in that, and are not
// reported again.
//
// Fault 74: what a Set has replaced does not come on top of it.
func TestFlightFromBeforeASet(t *testing.T) {
	for _, r := range []*limit.Rule{
		limit.Must(limit.TokenBucket("f", 100, time.Hour, 100)), limit.Must(limit.SlidingWindow("w", 100, time.Hour)),
	} {
		link, now := newTestLink(), int64(1e18)
		link.Part(1).SetOffset(0, 1)
		k := NewAlone("k", r, link, now)
		k.Refresh()
		k.asks(t, now)
		k.Settle(now, version{5, 5, 0}.answer(r, now))
		if _, ok := k.Take(now, 2, r); !ok {
			t.Fatal("a counter died")
		}
		if rep, ok := k.collect(now, Urgent); !ok || rep.Units != 2 {
			t.Fatalf("%v: collected %+v, %v", r, rep, ok)
		}
		set := version{9, 9, 27}.answer(r, now)
		k.Renew(now, r, report.Answer{State: report.State{Gen: set.Gen, Born: set.Born, Level: set.Level, Buckets: set.Buckets}, At: now, ServerNow: now})
		if out := k.Settle(now, set); out.Lost {
			t.Errorf("%v: the answer is taken for lost data", r)
		}
		if res, _ := k.Take(now, 0, r); res.Remaining != 73 {
			t.Errorf("%v: %d remain, want 73", r, res.Remaining)
		}
	}
}

// A node whose clock was set back learns of units ahead of its own bucket. They count as
// current, but it must not report them under the ID of that: the authority has them
// under another one, and would count them twice.
func TestUnitsAheadAreNotReportedElsewhere(t *testing.T) {
	r := windowRule(t, 100, 10*time.Second, 10)
	for _, by := range []string{"answer", "reset"} {
		link, now := newTestLink(), int64(1e18)
		link.Part(1).SetOffset(0, 1)
		k := NewAlone("k", r, link, now)
		k.Take(now, 1, r)
		k.asks(t, now)
		// Our clock has been set back by two buckets, and the offset is from before.
		ahead := now + 2*int64(arith.Of(r).Width)
		theirs := []report.Bucket{{ID: ahead / int64(arith.Of(r).Width), Units: 40}}
		a := report.Answer{Rule: r, State: report.State{Gen: 7, Born: 7, Buckets: theirs}, At: now, ServerNow: ahead, Slack: 1}
		if by == "reset" {
			k.Renew(now, r, report.Answer{State: report.State{Gen: 7, Born: 7, Buckets: theirs}, At: now, ServerNow: ahead})
		} else {
			k.Settle(now, a)
		}
		if res, _ := k.Take(now, 61, r); res.Allowed {
			t.Errorf("%s: 61 of 100 units admitted beside 40", by)
		}
		link.Part(1).SetOffset(2*int64(arith.Of(r).Width), 1)
		rep := k.resend(now, true)
		for _, b := range rep.Known.Buckets {
			if b.ID != theirs[0].ID {
				t.Errorf("%s: reports %v, answered were %v", by, rep.Known.Buckets, theirs)
			}
		}
	}
}

// A Set counts in the bucket in which the authority has made it, also if the clock that a
// node reads is behind, and shows the end of the bucket before.
func TestSetAtTheBeginningOfABucket(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, r := range []*limit.Rule{limit.Must(limit.FixedWindow("x", 10, time.Second)), limit.Must(limit.SlidingWindowBuckets("b", 10, time.Second, 1))} {
		link, now := newTestLink(), int64(1e18)+990*ms // the bucket ends in 10 ms
		link.Part(1).SetOffset(0, 5*ms)                // a window goes by no more than that
		c := NewAlone("k", r, link, now)
		c.allow(now, 1, r)
		server := now + 20*ms
		set := report.Bucket{ID: server / int64(arith.Of(r).Width), Units: 25, Last: 10 * time.Millisecond}
		c.Renew(now, r, report.Answer{State: report.State{Gen: 7, Born: 7, Buckets: []report.Bucket{set}}, At: now, ServerNow: server})
		for _, later := range []int64{0, 20, 500, 940} {
			if ok, _, _ := c.allow(now+later*ms, 1, r); ok {
				t.Errorf("%v: admitted %d ms after it was set to more than its limit", r, later)
			}
		}
	}
}
