package counter

import (
	"testing"
	"time"
)

// A lease would admit units that cannot move a waiting report forward.
func TestLingerWithoutLease(t *testing.T) {
	r := windowRule(t, 1000, time.Minute, 10)
	link := hearing(t)
	link.SetNodes(4)
	e, c := grantedTo(t, r, link)
	c.answeredAgain(t, noon+1000*ms, 960)
	now := int64(noon + 3000*ms)
	c.allow(noon+1500*ms, int64(c.urgentAt)-1, r)
	c.allow(now, 1, r)
	if lingers(c) == 0 || c.urgentAt < 2 {
		t.Fatalf("waits until %d with %d units", lingers(c), c.urgentAt)
	}
	if _, _, v := e.Take(7, r, 1, now); v != Unanswered {
		t.Error("a lease while the report waits")
	}
}

// An urgent report waits for others as long as all nodes together can hide no more than is left.
// While it does each unit is seen, and can only move it forward.
func TestLinger(t *testing.T) {
	r := windowRule(t, 100, time.Minute, 10)
	link := hearing(t)
	link.SetNodes(4)
	_, c := grantedTo(t, r, link)
	if out := c.answeredAgain(t, noon+1000*ms, 90); out.Urgent {
		t.Fatal("urgent without a unit")
	}
	now := int64(noon + 3000*ms) // 10 left: a unit is urgent, and may wait: 4 · 1 ≤ 10
	c.allow(now, 1, r)
	until := lingers(c)
	if want := now + 2000*ms*100/400; until != min(want, now+100*ms) {
		t.Fatalf("waits until %d, now is %d", until, now)
	}
	link.Drain(func(*Counter, bool) {})
	c.allow(now+2*ms, 1, r) // 4 · 2 ≤ 10, two units in 2 ms
	if next := lingers(c); next >= until {
		t.Errorf("the second unit does not move the report forward: %d, before %d", next, until)
	}
	moved := 0
	link.Drain(func(_ *Counter, urgent bool) { moved++ })
	if c.allow(now+3*ms, 1, r); lingers(c) != 0 || moved == 0 { // 4 · 3 > 10
		t.Errorf("still waits until %d", lingers(c))
	}
	before := lingers(c)
	c.allow(now+4*ms, 1, r)
	if lingers(c) > before {
		t.Error("a unit has moved the report back")
	}
	if !c.Collect(now+5*ms, Urgent) {
		t.Error("nothing to report")
	}
}

// answeredAgain has c ask at now, and answers that so many units are used.
func (c *Counter) answeredAgain(t *testing.T, now, used int64) Outcome {
	t.Helper()
	c.Refresh()
	c.asks(t, now)
	return c.answered(now, used, nil)
}

// A report does not wait while all nodes together can hide more than is left, nor before that is
// known, and a unit does not move it back.
func TestLingerEnds(t *testing.T) {
	r := windowRule(t, 100, time.Minute, 10)
	for name, c := range map[string]struct {
		used   int64 // that Redis counts at noon; 0: it has not answered
		first  int64 // when one unit is admitted, ms
		second int64 // when more units are, ms
		more   int64
		want   int64 // ms; 0: it does not wait
	}{
		"4 nodes can hide more than 10 units": {90, 1000, 1090, 2, 0},
		"it is not known what is left":        {0, 0, 1200, 12, 0},
		"a slow unit after a fast one":        {90, 100, 124, 1, 125},
	} {
		link := hearing(t)
		link.SetNodes(4)
		k := NewAlone("k", r, link, noon)
		if c.used > 0 {
			k.allow(noon, 1, r)
			k.report(t, noon, c.used, nil)
		}
		k.allow(noon+c.first*ms, 1, r)
		k.allow(noon+c.second*ms, c.more, r)
		if got := lingers(k); !k.is(inUrgent) || got != c.want*ms+noon*min(c.want, 1) {
			t.Errorf("%s: urgent %v, waits until %d ms", name, k.is(inUrgent), (got-noon)/ms)
		}
	}
}

// lingers returns until when the urgent report of c waits for others.
func lingers(c *Counter) (until int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lingerUntil
}
