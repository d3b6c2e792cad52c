package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// learn has c learn at now that Redis counts used units, by a call that has taken 1 ms.
func (c *Counter) learn(t *testing.T, now, used int64, st report.State, change func(*report.Answer)) Outcome {
	t.Helper()
	r := c.Rule()
	a := report.Answer{Rule: r, ServerNow: now + ahead, Sent: now - ms, State: st}
	if used > 0 && arith.Of(r).Algorithm == arith.TokenBucket {
		a.Level = arith.Of(r).Cost(used)
	} else if used > 0 {
		width := int64(arith.Of(r).Width)
		a.Buckets = []report.Bucket{{ID: (now + ahead) / width, Units: used, Last: time.Duration((now + ahead) % width)}}
	}
	if change != nil {
		change(&a)
	}
	out, ok := c.Learn(now, a)
	if !ok {
		t.Fatal("dropped")
	}
	return out
}

// left returns how many units c shows as left.
func (c *Counter) left(now int64) int64 {
	res, _ := c.peek(now, 0, c.Rule())
	return res.Remaining
}

const noonUS = (noon + ahead) / 1000

// An answer to a call that was no report counts if it is of a later time than what the counter knows.
// An earlier one, which a report has overtaken, does not count, and is no loss.
//
// Fault 104: answers that overtake each other.
func TestLearnOrder(t *testing.T) {
	for _, r := range smallRules(t) {
		for name, c := range map[string]struct {
			gen, born, used int64
			left            int64
			asks            bool
		}{
			"later":                     {noonUS - 9, noonUS + 1, 7, 3, false},
			"later, but less":           {noonUS - 9, noonUS + 1, 3, 5, false}, // a loss
			"earlier":                   {noonUS - 9, noonUS - 1, 2, 5, true},
			"nothing new":               {noonUS - 9, noonUS, 9, 5, false},
			"a reset":                   {noonUS + 2, noonUS + 2, 1, 9, false},
			"a refund":                  {noonUS + 2, noonUS, 4, 6, false},
			"before a reset":            {noonUS - 20, noonUS - 1, 9, 5, true},
			"before a reset, but later": {noonUS - 20, noonUS + 1, 9, 5, true},
		} {
			link := hearing(t)
			k := NewAlone("k", r, link, noon)
			k.Refresh()
			k.report(t, noon, 5, func(a *report.Answer) { a.Gen = noonUS - 9 })
			out := k.learn(t, noon+ms, c.used, report.State{Gen: c.gen, Born: c.born}, nil)
			if got := k.left(noon + ms); got != c.left || k.is(outdated) != c.asks || out.Lost != (name == "later, but less") {
				t.Errorf("%v, %s: %d left, wants %d; asks again: %v, wants %v; %+v", r, name, got, c.left, k.is(outdated), c.asks, out)
			}
		}
	}
}

// What a counter has not reported yet counts on top of what it learns, and is reported afterwards.
func TestLearnBesideOwnUnits(t *testing.T) {
	for _, r := range smallRules(t) {
		k := NewAlone("k", r, hearing(t), noon)
		out := k.learn(t, noon, 5, report.State{Born: noonUS}, nil)
		if !out.First || k.left(noon) != 5 {
			t.Errorf("%v: %d left, %+v", r, k.left(noon), out)
		}
		k.allow(noon, 3, r)
		k.learn(t, noon+ms, 6, report.State{Born: noonUS + 1}, nil)
		if got := k.left(noon + ms); got != 1 || k.Unsynced() != 3 {
			t.Errorf("%v: %d left, %d to report", r, got, k.Unsynced())
		}
		if rep, ok := k.collect(noon+ms, Urgent); !ok || rep.Units != 3 {
			t.Errorf("%v: %d units reported", r, rep.Units)
		}
		// A report is under way: Redis may have booked it before it has answered this, or after.
		k.learn(t, noon+2*ms, 9, report.State{Born: noonUS + 2}, nil)
		if got := k.left(noon + 2*ms); got != 1 || !k.is(outdated|inFlight) || k.Unsynced() != 3 {
			t.Errorf("%v: in flight: %d left, %d to report", r, got, k.Unsynced())
		}
		k.answered(noon+3*ms, 9, func(a *report.Answer) { a.Born = noonUS + 3 })
		if got := k.left(noon + 3*ms); got != 1 || k.Unsynced() != 0 {
			t.Errorf("%v: booked: %d left, %d to report", r, got, k.Unsynced())
		}
	}
}

// A counter learns nothing while it could not tell what that means.
//
// Fault 116: an answer that is late, and a clock that was set back.
func TestLearnNothing(t *testing.T) {
	for _, r := range smallRules(t) {
		for name, before := range map[string]func(k *Counter, a *report.Answer){
			"without a clock": func(k *Counter, _ *report.Answer) { k.part.SetOffset(0, -1) },
			"quarantined": func(k *Counter, _ *report.Answer) {
				k.Refresh()
				k.Collect(noon, Normal)
				k.Quarantine(noon, false)
			},
			"after an outage": func(k *Counter, _ *report.Answer) {
				k.part.SetMode(3, true)
				k.allow(noon, 1, r)
				k.part.SetMode(1, false)
			},
			"before Redis' clock was set back": func(k *Counter, _ *report.Answer) { k.part.SetOffset(ahead-5000*ms, 1000) },
			"of another shape": func(_ *Counter, a *report.Answer) {
				a.Rule = limit.Must(limit.SlidingWindow(r.Name(), 10, time.Hour))
				if arith.Of(r).Algorithm == arith.TokenBucket {
					a.Rule = limit.Must(limit.TokenBucket(r.Name(), 10, time.Hour, 10))
				}
			},
		} {
			k := NewAlone("k", r, hearing(t), noon)
			k.learn(t, noon, 2, report.State{Born: noonUS}, nil)
			var unsynced int64
			k.learn(t, noon+ms, 9, report.State{Born: noonUS + 1}, func(a *report.Answer) {
				before(k, a)
				unsynced = k.Unsynced()
			})
			k.part.SetOffset(ahead, 1000)
			if got := k.replica().KnownUnits(arith.Of(r), noon+ms); got > 2 || !k.is(outdated) || k.is(quarantined) != (name == "quarantined") || k.Unsynced() != unsynced {
				t.Errorf("%v, %s: knows %d units, asks again: %v, %d to report", r, name, got, k.is(outdated), k.Unsynced())
			}
		}
		k := NewAlone("k", r, hearing(t), noon)
		if _, ok := k.Drop(Used, noon); !ok {
			t.Fatal("not dropped")
		}
		if _, ok := k.Learn(noon, report.Answer{Rule: r}); ok {
			t.Errorf("%v: a dropped counter has learnt", r)
		}
	}
}

// Redis forgets a generation when nothing from before it can count. Then a counter that knows of it
// learns again.
func TestLearnAfterAGenerationWasForgotten(t *testing.T) {
	for _, r := range smallRules(t) {
		k := NewAlone("k", r, hearing(t), noon)
		k.learn(t, noon, 4, report.State{Gen: noonUS, Born: noonUS}, nil)
		later := noon + 3*int64(arith.Of(r).Horizon())
		k.learn(t, later, 9, report.State{Born: (later + ahead) / 1000}, nil)
		if got := k.left(later); got != 1 {
			t.Errorf("%v: %d left", r, got)
		}
	}
}

// The time of an answer is known by Redis' clock: a reply that was late for long does not make a leaky
// bucket leak later.
func TestLearnFromALateReply(t *testing.T) {
	r := funnelRule(t, 10, 10, time.Minute)
	k := NewAlone("k", r, hearing(t), noon)
	late := func(a *report.Answer) { a.ServerNow, a.Sent = noon+ahead, noon-ms }
	k.learn(t, noon+6000*ms, 10, report.State{Born: noonUS}, late)
	if got := k.left(noon + 6000*ms); got != 1 {
		t.Errorf("%d units have leaked in 6 s", got)
	}
	k.Refresh()
	out := k.report(t, noon+6000*ms, 8, func(a *report.Answer) { a.Born = noonUS })
	if !out.Lost || !k.is(restoring) {
		t.Errorf("one unit less than what was known is no loss: %+v", out)
	}
}

// A counter that learns that its key is used up says so, if units were booked by that call.
func TestLearnAnnounces(t *testing.T) {
	for _, r := range smallRules(t) {
		for _, booked := range []bool{true, false} {
			k := NewAlone("k", r, hearing(t), noon)
			out := k.learn(t, noon, 10, report.State{Born: noonUS}, func(a *report.Answer) { a.Announce = booked })
			if (out.Notice != nil) != booked {
				t.Errorf("%v, booked %v: %+v", r, booked, out)
			}
		}
	}
}

// A counter refuses from memory what it would refuse otherwise, and consumes nothing. Only a refusal
// makes it ask Redis for news.
//
// Fault 104: nobody is refused without a cause, nor for ever.
func TestRefuses(t *testing.T) {
	for _, r := range smallRules(t) {
		link := hearing(t)
		k := NewAlone("k", r, link, noon)
		refuses := func(now, n int64, want bool) limit.Result {
			t.Helper()
			res, refused, ok := k.Refuses(now, n, r)
			if !ok || refused != want || refused && (res.Allowed || res.RetryAfter <= 0 || res.Limit != 10) {
				t.Errorf("%v: %+v, refused %v, %v", r, res, refused, ok)
			}
			return res
		}
		refuses(noon, 10, false)
		if k.is(inNormal) || k.Unsynced() != 0 {
			t.Errorf("%v: asks Redis for what is asked anyway", r)
		}
		if res := refuses(noon, 11, true); res.RetryAfter != limit.Never {
			t.Errorf("%v: %+v", r, res)
		}
		k.learn(t, noon, 6, report.State{Born: noonUS}, nil)
		k.allow(noon, 3, r)
		refuses(noon, 1, false)
		if res := refuses(noon, 2, true); res.Remaining != 1 || res.Source != limit.SourceSynced {
			t.Errorf("%v: %+v", r, res)
		}
		if !k.is(inNormal) || k.Unsynced() != 3 {
			t.Errorf("%v: does not ask for news, or has consumed something", r)
		}
		k.Hear(noon+ms, notice(r, noon+ms, 100*ms))
		if res := refuses(noon+2*ms, 1, true); res.Source != limit.SourceNotice || res.Remaining != 0 {
			t.Errorf("%v: %+v", r, res)
		}
		link.Part(1).SetMode(2, true)
		refuses(noon+3*ms, 11, false) // in an outage
	}
	r := smallRules(t)[0]
	k := NewAlone("k", r, hearing(t), noon)
	k.Drop(Used, noon)
	if _, refused, ok := k.Refuses(noon, 11, r); ok || refused {
		t.Error("a dropped counter refuses")
	}
	dry := r.DryRun()
	k = NewAlone("k", dry, hearing(t), noon)
	if res, refused, _ := k.Refuses(noon, 11, dry); !refused || !res.Allowed || !res.WouldRefuse {
		t.Errorf("a dry run: %+v", res)
	}
}

// own makes an answer one of a call that has booked units.
func own(units int64) func(*report.Answer) { return func(a *report.Answer) { a.Own = units } }

// What a call has booked while its answer could not be applied is handed back all the same, with the next
// answer that can be: at most as many units as the calls have booked, and none that a reset has cleared.
//
// Fault 107: units of an exact check that are handed back while a report is under way, before Redis'
// clock is known, after an outage, and while Redis cannot use the key.
func TestHandBackBeforeItIsLearnt(t *testing.T) {
	for _, r := range smallRules(t) {
		for name, c := range map[string]struct {
			before  func(k *Counter)
			after   func(k *Counter)
			between func(k *Counter)
			answer  report.State // that ends the exchange, with used units
			used    int64
			want    int64 // are handed back in the end
		}{
			"in flight": {
				before: func(k *Counter) { k.Refresh(); k.Collect(noon, Urgent) },
				answer: report.State{Born: noonUS}, used: 5, want: 3,
			},
			"in flight, and booked before the report": {
				before: func(k *Counter) { k.Refresh(); k.Collect(noon, Urgent) },
				answer: report.State{Born: noonUS + 2}, used: 8, want: 3,
			},
			"without a clock": {
				before: func(k *Counter) { k.part.SetOffset(0, -1) },
				after:  func(k *Counter) { k.part.SetOffset(ahead, 0); k.Refresh(); k.Collect(noon, Normal) },
				answer: report.State{Born: noonUS}, used: 5, want: 3,
			},
			"quarantined": {
				before: func(k *Counter) { k.Refresh(); k.Collect(noon, Normal); k.Quarantine(noon, false) },
				after:  func(k *Counter) { k.Requeue(); k.Collect(noon, Normal) },
				answer: report.State{Born: noonUS + 2}, used: 8, want: 3,
			},
			"cleared by a reset of this node": {
				before: func(k *Counter) { k.Refresh(); k.Collect(noon, Urgent) },
				between: func(k *Counter) {
					k.Renew(noon+2*ms, r, report.Answer{At: noon + ms, ServerNow: noon + ahead + ms, State: report.State{Gen: noonUS + 1000, Born: noonUS + 1000}})
				},
				answer: report.State{Gen: noonUS + 1000, Born: noonUS + 2000}, used: 2, want: 0,
			},
		} {
			k := NewAlone("k", r, hearing(t), noon)
			k.Refresh()
			k.report(t, noon, 5, func(a *report.Answer) { a.Born = noonUS })
			c.before(k)
			k.learn(t, noon+ms, 7, report.State{Born: noonUS + 1}, own(2))
			k.learn(t, noon+ms, 8, report.State{Born: noonUS + 1}, own(1)) // in the same µs
			for _, n := range []int64{1, 2} {
				if back, taken, _ := k.Refund(noon+ms, n, r); back != n || taken != n {
					t.Errorf("%v, %s: %d of %d handed back, %d taken", r, name, back, n, taken)
				}
			}
			if k.Owed() != 3 || !k.Pending() || k.Retention(noon+ms) < Kept {
				t.Errorf("%v, %s: owes %d units", r, name, k.Owed())
			}
			if c.between != nil {
				c.between(k)
			}
			if c.after != nil {
				c.after(k)
			}
			k.answered(noon+3*ms, c.used, func(a *report.Answer) { a.State.Gen, a.State.Born = c.answer.Gen, c.answer.Born })
			if k.Owed() != 0 {
				t.Errorf("%v, %s: still owes %d units", r, name, k.Owed())
			}
			rep, _ := k.collect(noon+4*ms, Normal)
			back := arith.Of(r).WholeUp(rep.Back)
			for _, b := range rep.BackBuckets {
				back += b.Units
			}
			if back != c.want {
				t.Errorf("%v, %s: %d units are reported as handed back, want %d", r, name, back, c.want)
			}
		}
	}
}

// Redis has booked a report and subtracted its refunds, and then the key broke: both are known.
func TestBookedBeforeItBroke(t *testing.T) {
	for _, r := range smallRules(t) {
		k := NewAlone("k", r, hearing(t), noon)
		k.report(t, noon, 5, nil)
		if back, _, _ := k.Refund(noon, 2, r); back != 2 {
			t.Fatalf("%v: %d of 2 handed back", r, back)
		}
		k.allow(noon, 1, r)
		k.collect(noon, Urgent)
		k.Quarantine(noon+ms, true)
		if left := k.left(noon + ms); left != 6 || k.Pending() {
			t.Errorf("%v: %d left, wants 6", r, left)
		}
	}
}

// A caller who waits for what was handed back is woken when the exchange ends, whatever it says.
func TestAwaitReturns(t *testing.T) {
	for _, r := range smallRules(t) {
		for name, end := range map[string]func(k *Counter){
			"an answer":  func(k *Counter) { k.answered(noon+ms, 4, nil) },
			"quarantine": func(k *Counter) { k.Quarantine(noon+ms, false) },
			"it is gone": func(k *Counter) { k.answered(noon+ms, 4, nil); k.Drop(Kept, noon+ms) },
		} {
			k := NewAlone("k", r, hearing(t), noon)
			k.report(t, noon, 5, nil)
			none := k.AwaitReturns(noon)
			k.Refund(noon, 2, r)
			ended := k.AwaitReturns(noon)
			if _, ok := k.collect(noon, Urgent); none != nil || ended == nil || !ok {
				t.Fatalf("%v, %s: waits for nothing: %v, for what was handed back: %v, it is urgent: %v", r, name, none != nil, ended != nil, ok)
			}
			end(k)
			select {
			case <-ended:
			default:
				t.Errorf("%v: %s does not end the wait", r, name)
			}
		}
	}
}

// What Redis has booked before its copy of a key broke is a lower bound of what it should have, what was
// remembered of the key is not.
//
// Fault 116: a key that was remembered, and then broken.
func TestBookedBesideWhatWasRemembered(t *testing.T) {
	for _, r := range smallRules(t) {
		old := NewAlone("k", r, hearing(t), noon)
		old.allow(noon, 4, r)
		d, ok := old.Drop(Unreported, noon)
		k := NewAlone("k", r, hearing(t), noon)
		k.Resume(noon, d.Trace)
		k.allow(noon, 3, r)
		if !ok || k.left(noon) != 3 {
			t.Fatalf("%v: %d left", r, k.left(noon))
		}
		k.Collect(noon, Urgent)
		k.Quarantine(noon, true)
		k.Requeue()
		k.Collect(noon+ms, Normal)
		if out := k.answered(noon+ms, 0, nil); !out.Lost || k.left(noon+ms) != 7 {
			t.Errorf("%v: %d left, %+v", r, k.left(noon+ms), out)
		}
	}
}
