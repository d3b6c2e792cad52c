package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A key that refuses asks late only while notices arrive, and only if Redis has said that it is
// used up.
func TestRefusedLag(t *testing.T) {
	r := windowRule(t, 10, time.Minute, 10)
	for name, c := range map[string]struct {
		used    int64
		prepare func(*Link, *Counter)
		want    int64
	}{
		"used up":          {10, func(*Link, *Counter) {}, RefusedLag},
		"no notices":       {10, func(l *Link, _ *Counter) { l.setHearing(NeverHears) }, 500 * ms},
		"missed before":    {10, func(l *Link, _ *Counter) { l.setHearing(noon) }, RefusedLag},
		"missed since":     {10, func(l *Link, _ *Counter) { l.setHearing(noon + 1) }, 500 * ms},
		"another question": {10, func(_ *Link, c *Counter) { c.Touch(noon+2*ms, r) }, 500 * ms},
		"a claim": {5, func(_ *Link, c *Counter) {
			c.Reserve(noon+ms, 10, r, Terms{Claim: true})
			if ok, _, _ := c.allow(noon+ms, 1, r); ok {
				t.Error("what is claimed was taken")
			}
		}, 500 * ms},
	} {
		link := hearing(t)
		k := NewAlone("k", r, link, noon)
		k.allow(noon, 1, r)
		k.report(t, noon, c.used, nil)
		if c.used == 10 {
			k.allow(noon+ms, 1, r)
		}
		c.prepare(link, k)
		if got := k.Due(noon+2*ms) - noon; got != c.want {
			t.Errorf("%s: asks after %v", name, time.Duration(got))
		}
	}
	short := windowRule(t, 10, time.Second, 10)
	k := NewAlone("k", short, hearing(t), noon)
	k.allow(noon, 1, short)
	k.report(t, noon, 10, nil)
	k.allow(noon+ms, 1, short)
	if got := k.Due(noon+2*ms) - noon; got != 550*ms {
		t.Errorf("a window of a second: asks after %v", time.Duration(got))
	}
	busy := NewAlone("k", r, hearing(t), noon)
	busy.allow(noon, 1, r)
	busy.Collect(noon, Urgent)
	busy.allow(noon, 1, r) // while the report is under way
	busy.answered(noon, 10, nil)
	busy.allow(noon+ms, 1, r)
	if got := busy.Due(noon+2*ms) - noon; got != 500*ms {
		t.Errorf("with a unit that is not reported: asks after %v", time.Duration(got))
	}
}

// A lease that refuses for long, because a notice would say that there is room, ends when notices do not
// arrive any more, and when one may have been missed.
func TestLeasesEndWithoutNotices(t *testing.T) {
	r := windowRule(t, 10, time.Minute, 10)
	for name, since := range map[string]int64{"no notices": NeverHears, "a notice may have been missed": noon + 2000*ms} {
		link := hearing(t)
		e, c := grantedTo(t, r, link)
		c.answeredAgain(t, noon+ms, 10)
		c.allow(noon+2*ms, 1, r)
		if _, _, v := e.Take(7, r, 1, noon+2000*ms); v != Refused {
			t.Fatalf("%v while notices arrive", v)
		}
		link.setHearing(since)
		if _, _, v := e.Take(7, r, 1, noon+2000*ms); v != Unanswered {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// Redis has answered that there is room again: what a lease admits from then on is reported within
// a lag, although the latest check was refused.
func TestRoomEndsPatience(t *testing.T) {
	for _, r := range []*limit.Rule{funnelRule(t, 1000, 1000, time.Minute), windowRule(t, 1000, time.Minute, 10)} {
		e, c := grantedTo(t, r, hearing(t))
		c.answeredAgain(t, noon+ms, 1000)
		c.allow(noon+2*ms, 1, r)
		c.Refresh()
		c.Collect(noon+100*ms, Normal)
		c.answered(noon+100*ms, 10, func(a *report.Answer) { a.Gen = (noon+ahead)/1000 + 50_000 }) // reset by a node that is not heard
		if _, _, v := e.Take(7, r, 1, noon+101*ms); v != Admitted {
			t.Fatalf("%v: no lease", r)
		}
		if got := c.Due(noon+2*ms) - noon; got != 600*ms {
			t.Errorf("%v: reports after %v", r, time.Duration(got))
		}
	}
}

// A key that Redis has not answered for is due at once, also by a clock that has just begun at 0.
func TestNewKeyIsDueAtOnce(t *testing.T) {
	r := windowRule(t, 10, time.Minute, 10)
	k := NewAlone("k", r, hearing(t), 0)
	k.allow(0, 1, r)
	if due := k.Due(2 * ms); due > 0 {
		t.Errorf("due at %d", due)
	}
}
