package counter

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// hearing returns a link of two nodes that hears notices, with a clock that is 5 s ahead.
func hearing(t *testing.T) *Link {
	t.Helper()
	link := newTestLink()
	link.SetNotices(10, func(_ int, r *limit.Rule, key report.StoredKey) (id report.NoticeID) {
		copy(id[:], r.Name()+"/"+key.Text)
		return id
	})
	link.SetNodes(2)
	link.Part(1).SetOffset(ahead, 1000)
	link.setHearing(0)
	return link
}

// setHearing sets since when notices of all shards arrive.
func (l *Link) setHearing(since int64) {
	for i := range l.parts {
		l.parts[i].SetHearing(since)
	}
}

const (
	ahead = 5_000_000_000
	ms    = 1_000_000
	noon  = 1_000_000_000_000_000
)

// notice returns what is heard at now of a key that is used up for a while.
func notice(r *limit.Rule, now, lasts int64) report.Notice {
	a := arith.Of(r)
	return report.Notice{Shape: a.ShapeHash(), Limit: r.Limit(), Now: time.Duration(now + ahead), Until: time.Duration(now + lasts + ahead)}
}

func smallRules(t *testing.T) []*limit.Rule {
	return []*limit.Rule{funnelRule(t, 10, 10, time.Minute), windowRule(t, 10, time.Minute, 10)}
}

// answered settles a report of c at now: Redis counts used units, all booked now.
func (c *Counter) answered(now, used int64, change func(*report.Answer)) Outcome {
	r := c.Rule()
	a := report.Answer{Rule: r, At: now, ServerNow: now + ahead, Sent: now - ms, State: report.State{Born: (now + ahead) / 1000}, Slack: ms}
	if used > 0 && arith.Of(r).Algorithm == arith.TokenBucket {
		a.Level = arith.Of(r).Cost(used)
	} else if used > 0 {
		width := int64(arith.Of(r).Width)
		a.Buckets = []report.Bucket{{ID: (now + ahead) / width, Units: used, Last: time.Duration((now + ahead) % width)}}
	}
	if change != nil {
		change(&a)
	}
	return c.Settle(now, a)
}

// report collects what c has to report at now, and has it answered.
func (c *Counter) report(t *testing.T, now, used int64, change func(*report.Answer)) Outcome {
	t.Helper()
	if !c.Collect(now, Urgent) {
		t.Fatal("nothing to report")
	}
	return c.answered(now, used, change)
}

// A counter that has heard that its key is used up refuses until one unit fits, whatever is
// asked, and says on what that rests.
func TestNoticeRefuses(t *testing.T) {
	for _, r := range smallRules(t) {
		link := hearing(t)
		c := NewAlone("k", r, link, noon)
		c.allow(noon, 1, r)
		c.Hear(noon+ms, notice(r, noon+ms, 1000*ms))
		now := int64(noon + 2*ms)
		want := func(what string, res limit.Result) {
			t.Helper()
			if res.Allowed || res.Remaining != 0 || res.RetryAfter != 999*ms || res.ResetAfter < 999*ms || res.Source != limit.SourceNotice {
				t.Errorf("%v: %s: %+v", r, what, res)
			}
		}
		ok, src, _ := c.allow(now, 1, r)
		if ok || src != limit.SourceNotice {
			t.Errorf("%v: %v, %v", r, ok, src)
		}
		res, _ := c.take(now, 1, r)
		want("take", res)
		res, _ = c.take(now, 3, r)
		want("take of 3", res)
		res, _ = c.peek(now, 1, r)
		want("peek", res)
		granted, res, _ := c.TakeAtMost(now, 5, r)
		if want("take at most", res); granted != 0 {
			t.Errorf("%v: %d granted", r, granted)
		}
		out := make([]limit.Result, 1)
		TakeTogether([]Asked{{Counter: c}}, []limit.Check{{Key: "k", Rule: r, N: 1}}, now, out)
		want("take all", out[0])
		if res, _ = c.take(now, 11, r); res.RetryAfter != limit.Never || res.Source == limit.SourceNotice {
			t.Errorf("%v: more than the limit: %+v", r, res)
		}
		if res, _ = c.take(now, 0, r); !res.Allowed || res.Remaining != 0 {
			t.Errorf("%v: 0 units: %+v", r, res)
		}
		if res, booked, _ := c.Reserve(now, 1, r, Terms{}); booked == nil {
			t.Errorf("%v: a reservation obeys: %+v", r, res)
		}
		if ok, _, _ = c.allow(noon+1001*ms, 1, r); !ok {
			t.Errorf("%v: refused although the notice is over", r)
		}
	}
}

// A notice binds rules of its shape whose limit is no higher. It binds nobody who is not to
// be limited, and in an outage it ends a lag after it was heard.
func TestNoticeBinds(t *testing.T) {
	in := func(limit, per int64) *limit.Rule { return windowRule(t, limit, time.Duration(per)*time.Second, 10) }
	for _, c := range []struct {
		name  string
		rule  *limit.Rule // that is asked; the notice is of 10 a minute
		mode  int64
		after int64 // ms
		want  bool  // admitted
	}{
		{"the rule itself", in(10, 60), 1, 1, false},
		{"a lower limit", in(9, 60), 1, 1, false},
		{"a higher limit", in(11, 60), 1, 1, true},
		{"another window", in(10, 61), 1, 1, true},
		{"open", in(10, 60), MultiplierOpen, 1, true},
		{"an outage", in(10, 60), 2, 1, false},
		{"an outage, a lag later", in(10, 60), 2, 501, true},
		{"a lag later", in(10, 60), 1, 501, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			link := hearing(t)
			k := NewAlone("k", c.rule, link, noon)
			k.Hear(noon, notice(in(10, 60), noon, 10_000*ms))
			if c.mode != 1 {
				link.SetMode(c.mode, true)
			}
			if ok, _, _ := k.allow(noon+c.after*ms, 1, c.rule); ok != c.want {
				t.Errorf("admitted: %v", ok)
			}
		})
	}
}

// What is older than what the counter knows, or than a reset that it knows of, counts for
// nothing, and so does what arrives while nobody can say that there is room again.
func TestNoticeIsNotHeard(t *testing.T) {
	for name, prepare := range map[string]func(link *Link, c *Counter, n *report.Notice){
		"an older generation": func(link *Link, c *Counter, n *report.Notice) {
			link.Part(1).SetOffset(ahead, 20*ms) // else it would be older than the answer, too
			c.Renew(noon, c.Rule(), report.Answer{State: report.State{Gen: (noon + ahead) / 1000}, At: noon, ServerNow: noon + ahead})
			n.Now -= 10 * ms
		},
		"an earlier answer": func(_ *Link, c *Counter, n *report.Notice) { n.Now -= 10 * ms },
		"it is over":        func(_ *Link, _ *Counter, n *report.Notice) { n.Until = time.Duration(noon + ahead) },
		"an outage":         func(link *Link, _ *Counter, _ *report.Notice) { link.SetMode(2, true); link.Part(0).SetMode(1, false) },
		"a broken key": func(_ *Link, c *Counter, _ *report.Notice) {
			c.allow(noon, 1, c.Rule())
			c.Collect(noon, Urgent)
			c.Quarantine(noon, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			link := hearing(t)
			r := windowRule(t, 10, time.Minute, 10)
			c := NewAlone("k", r, link, noon-ms)
			c.allow(noon-ms, 1, r)
			c.report(t, noon, 1, nil)
			n := notice(r, noon, 10_000*ms)
			prepare(link, c, &n)
			c.Hear(noon, n)
			if c.notice != nil {
				t.Errorf("heard %+v", *c.notice)
			}
		})
	}
}

// An answer to an exchange that began after the notice was heard ends it, and so does one of a
// later time of Redis. Any other does not.
func TestAnswerEndsNotice(t *testing.T) {
	for _, c := range []struct {
		sent, server int64 // relative to when the notice was heard, and to its time, ms
		want         bool
	}{{-1, -1, false}, {0, -1, true}, {-1, 0, true}, {5, -3_600_000, true}} {
		link := hearing(t)
		r := funnelRule(t, 10, 10, time.Minute)
		k := NewAlone("k", r, link, noon-10*ms)
		k.allow(noon-10*ms, 1, r)
		k.Collect(noon-5*ms, Urgent)
		k.Hear(noon, notice(r, noon, 10_000*ms))
		out := k.answered(noon+10*ms, 1, func(a *report.Answer) {
			a.Sent, a.ServerNow = noon+c.sent*ms, noon+ahead+c.server*ms
		})
		if ended := k.notice == nil; ended != c.want || out.Forget != c.want {
			t.Errorf("%+v: ended %v, to be forgotten %v", c, ended, out.Forget)
		}
	}
}

// The report that uses up a key is told once, with the time from which one unit fits.
func TestAnnouncement(t *testing.T) {
	for _, r := range smallRules(t) {
		link := hearing(t)
		c := NewAlone("k", r, link, noon)
		tell := func(a *report.Answer) { a.Announce = true }
		take := func(now, used int64, change func(*report.Answer)) *report.Notice {
			t.Helper()
			c.allow(now, 1, r)
			return c.report(t, now, used, change).Notice
		}
		if n := take(noon, 9, tell); n != nil {
			t.Errorf("%v: told although there is room: %+v", r, n)
		}
		if n := take(noon+1000*ms, 10, nil); n != nil {
			t.Errorf("%v: a duplicate is told: %+v", r, n)
		}
		c = NewAlone("k", r, link, noon)
		n := take(noon+1000*ms, 10, tell)
		res, _ := c.peek(noon+1000*ms, 1, r)
		if n == nil || n.Limit != 10 || n.Now != time.Duration(noon+ahead+1000*ms) || n.Until != n.Now+res.RetryAfter || res.RetryAfter < 5*time.Second {
			t.Fatalf("%v: told %+v, and asked, %+v", r, n, res)
		}
		k := NewAlone("k", r, link, noon)
		k.allow(noon, 1, r)
		k.Hear(noon+1000*ms, *n)
		if again := k.report(t, noon+1000*ms, 10, tell).Notice; again != nil {
			t.Errorf("%v: told again: %+v", r, again)
		}
	}
	fast := funnelRule(t, 10, 10, 500*time.Millisecond) // one unit fits after 50 ms: half a tick
	c := NewAlone("k", fast, hearing(t), noon)
	c.allow(noon, 1, fast)
	if n := c.report(t, noon, 10, func(a *report.Answer) { a.Announce = true }).Notice; n != nil {
		t.Errorf("%v: told for a moment: %+v", fast, n)
	}
}

// Nothing is told of a dry run, of an outage, or by a link that has no notices.
func TestNoAnnouncement(t *testing.T) {
	r := windowRule(t, 10, time.Minute, 10)
	for name, c := range map[string]struct {
		rule *limit.Rule
		link func(*Link)
	}{
		"a dry run":  {r.DryRun(), func(*Link) {}},
		"an outage":  {r, func(l *Link) { l.SetMode(1, true) }},
		"no notices": {r, func(l *Link) { l.notices.name = nil }},
	} {
		link := hearing(t)
		k := NewAlone("k", c.rule, link, noon)
		k.allow(noon, 1, c.rule)
		k.Collect(noon, Urgent)
		c.link(link)
		if n := k.answered(noon+ms, 10, func(a *report.Answer) { a.Announce = true }).Notice; n != nil {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// A notice ends the lease that could go on admitting, and is what the next refusals rest on.
func TestNoticeRevokesLease(t *testing.T) {
	for _, r := range []*limit.Rule{funnelRule(t, 1000, 1000, time.Minute), windowRule(t, 1000, time.Minute, 10)} {
		e, c := grantedTo(t, r, hearing(t))
		if _, _, v := e.Take(7, r, 1, noon+ms); v != Admitted {
			t.Fatalf("%v: no lease", r)
		}
		c.Hear(noon+2*ms, notice(r, noon+2*ms, 100*ms)) // less than a lag
		if _, _, v := e.Take(7, r, 1, noon+3*ms); v != Unanswered {
			t.Fatalf("%v: a lease decides after the notice", r)
		}
		c.allow(noon+4*ms, 1, r)
		if _, src, v := e.Take(7, r, 1, noon+5*ms); v != Refused || src != limit.SourceNotice {
			t.Errorf("%v: %v by %v", r, v, src)
		}
		if _, _, v := e.Take(7, r, 1, noon+103*ms); v != Unanswered {
			t.Errorf("%v: refused when the notice is over", r)
		}
	}
}

// grantedTo returns a counter that Redis has answered for at noon, and its entry, print 7.
func grantedTo(t *testing.T, r *limit.Rule, link *Link) (*Entry, *Counter) {
	t.Helper()
	e, c := new(Entry), New("k", r, 1, &Group{Link: link}, noon)
	c.Enter(e, 7)
	c.allow(noon, 1, r)
	c.report(t, noon, 1, nil)
	return e, c
}

// When a notice is over all nodes begin at the same instant: the first unit is urgent, and does
// not wait for company.
func TestFirstUnitAfterANotice(t *testing.T) {
	r := windowRule(t, 1000, time.Minute, 10)
	link := hearing(t)
	c := NewAlone("k", r, link, noon)
	c.allow(noon, 1, r)
	c.report(t, noon, 1, nil)
	c.Hear(noon+ms, notice(r, noon+ms, 1000*ms))
	link.Drain(func(*Counter, bool) {})
	c.allow(noon+2000*ms, 1, r)
	urgent := false
	link.Drain(func(_ *Counter, u bool) { urgent = urgent || u })
	if !urgent || lingers(c) != 0 {
		t.Errorf("urgent: %v, waits until %d", urgent, lingers(c))
	}
	c.report(t, noon+2000*ms, 994, nil)
	c.allow(noon+4000*ms, 1, r)
	if got := lingers(c) - noon; got != 4100*ms {
		t.Errorf("the next urgent unit waits until %v", time.Duration(got))
	}
}

// A counter that is made later obeys what was heard before, if Redis has not answered since.
func TestNewCounterObeys(t *testing.T) {
	for _, r := range smallRules(t) {
		link := hearing(t)
		id := NewAlone("k", r, link, noon).ID()
		n := notice(r, noon, 1000*ms)
		if !link.Keep(id, n, noon) {
			t.Fatal("not kept")
		}
		if ok, src, _ := NewAlone("k", r, link, noon).allow(noon+ms, 1, r); ok || src != limit.SourceNotice {
			t.Errorf("%v: %v by %v", r, ok, src)
		}
		if MakeUp("k", r, &Group{Link: link}, noon).notice == nil {
			t.Errorf("%v: the answer about a key without a counter does not", r)
		}
		if ok, _, _ := NewAlone("other", r, link, noon).allow(noon+ms, 1, r); !ok {
			t.Errorf("%v: another key is refused", r)
		}
		link.Keep(id, report.Notice{Now: n.Now + ms}, noon+ms)
		if ok, _, _ := NewAlone("k", r, link, noon).allow(noon+ms, 1, r); !ok {
			t.Errorf("%v: refused although there is room again", r)
		}
		if link.Keep(id, n, noon+2*ms) {
			t.Errorf("%v: an older notice counts", r)
		}
		link.Keep(id, notice(r, noon+3*ms, 1000*ms), noon+3*ms)
		if link.Forget(id); link.Kept() != 0 {
			t.Errorf("%v: %d kept", r, link.Kept())
		}
	}
}

// Notices are anybody's input: their number is bounded, and new ones find room.
func TestNoticesAreBounded(t *testing.T) {
	r := windowRule(t, 10, time.Minute, 10)
	link := hearing(t)
	keep := func(name string, lasts int64) report.NoticeID {
		var id report.NoticeID
		copy(id[:], name)
		link.Keep(id, notice(r, noon, lasts), noon)
		if link.Kept() > leastNotices {
			t.Fatalf("%d kept", link.Kept())
		}
		return id
	}
	for i := range 3 * leastNotices { // forged: they end in the year 2255
		keep(fmt.Sprint(i), math.MaxInt64/2)
	}
	id := keep("new", 1000*ms)
	if _, kept := link.Missed(id, noon); !kept { // in the instant in which the exchange began
		t.Error("a new one finds no room")
	}
	if _, kept := link.Missed(id, noon+1); kept {
		t.Error("it was received before the exchange began")
	}
	if link.SweepNotices(func(n report.Notice) bool { return int64(n.Until) > noon*2 }); link.Kept() != 1 {
		t.Errorf("%d are left", link.Kept())
	}
}

// A notice refuses for no longer than units of the rule count, whatever it says.
func TestNoticeEndsWithTheRule(t *testing.T) {
	for _, r := range smallRules(t) {
		link := hearing(t)
		received := NewAlone("k", r, link, noon)
		forged := notice(r, noon, 1000*ms)
		forged.Until = math.MaxInt64
		received.Hear(noon, forged)
		link.Keep(received.ID(), forged, noon)
		for name, c := range map[string]*Counter{"heard": received, "kept": NewAlone("k", r, link, noon)} {
			if c.notice == nil || c.notice.until > noon+int64(arith.Of(r).Horizon()) {
				t.Errorf("%v: %s: %+v", r, name, c.notice)
			}
		}
	}
}

// Units that are booked ahead of time refuse nobody elsewhere: the others ask.
func TestBookedAheadRefusesNobody(t *testing.T) {
	r := funnelRule(t, 10, 10, time.Minute)
	c := NewAlone("k", r, hearing(t), noon)
	c.allow(noon, 10, r)
	if _, booked, _ := c.Reserve(noon, 1, r, Terms{MaxDelay: int64(time.Minute)}); booked == nil {
		t.Fatal("not booked")
	}
	n := c.report(t, noon+ms, 11, func(a *report.Answer) { a.Announce = true }).Notice
	if n == nil || n.Until != 0 {
		t.Errorf("told %+v", n)
	}
	c.Reserve(noon+2*ms, 1, r, Terms{MaxDelay: int64(time.Minute)}) // many callers who wait are no flood of notices
	if n := c.report(t, noon+3*ms, 12, func(a *report.Answer) { a.Announce = true }).Notice; n != nil {
		t.Errorf("again within a lag: %+v", n)
	}
}

// Who makes room himself does not obey any longer what was heard before; who hands nothing back makes none.
func TestOwnRoomEndsNotice(t *testing.T) {
	for _, r := range smallRules(t) {
		none := NewAlone("k", r, hearing(t), noon)
		none.Hear(noon, notice(r, noon, 10_000*ms))
		if back, _, _ := none.Refund(noon+ms, 1, r); back != 0 || none.notice == nil {
			t.Errorf("%v: %d handed back, a notice was forgotten", r, back)
		}
		for name, room := range map[string]func(c *Counter){
			"a refund": func(c *Counter) { c.Refund(noon+2*ms, 1, r) },
			"a reset": func(c *Counter) {
				c.Renew(noon+2*ms, r, report.Answer{State: report.State{Gen: (noon + ahead) / 1000}, At: noon + 2*ms, ServerNow: noon + ahead + 2*ms})
			},
		} {
			c := NewAlone("k", r, hearing(t), noon)
			c.allow(noon, 1, r)
			c.Hear(noon+ms, notice(r, noon+ms, 1000*ms))
			if room(c); c.notice != nil {
				t.Errorf("%v: %s: still obeys %+v", r, name, *c.notice)
			}
		}
	}
}
