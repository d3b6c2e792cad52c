package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"
)

// The answer to a report that was sent before a key had room again does not hide the notice of that.
func TestRoomIsHeardInFlight(t *testing.T) {
	for _, r := range smallRules(t) {
		c := NewAlone("k", r, hearing(t), noon)
		c.allow(noon, 1, r)
		c.report(t, noon, 10, nil)
		later := int64(noon + 5100*ms)
		c.allow(later, 1, r)
		c.asks(t, later)
		room := notice(r, later+2*ms, 0)
		room.Until = 0
		c.Hear(later+3*ms, room)
		c.answered(later+4*ms, 10, func(a *report.Answer) {
			a.Sent, a.At, a.ServerNow, a.Born = later, later+ms, later+ms+ahead, (noon+ahead)/1000
		})
		if c.Due(later+4*ms) > later+4*ms {
			t.Errorf("%v: asks after %v", r, time.Duration(c.Due(later+4*ms)-later))
		}
		if c.Collect(later+5*ms, Normal); !c.is(inFlight) {
			t.Errorf("%v: does not ask again", r)
		}
	}
}

// Units that were handed back are told if they were missed. Who hears that asks at once.
func TestRoomIsTold(t *testing.T) {
	for _, r := range smallRules(t) {
		link := hearing(t)
		c := NewAlone("k", r, link, noon)
		c.allow(noon, 1, r)
		c.report(t, noon, 10, nil)
		c.Refund(noon+1000*ms, 1, r)
		n := c.report(t, noon+1000*ms, 8, func(a *report.Answer) { a.Returned, a.Gen = true, (noon+ahead)/1000+900_000 }).Notice
		if n == nil || n.Until != 0 {
			t.Fatalf("%v: told %+v", r, n)
		}
		full := NewAlone("k", r, link, noon)
		full.allow(noon, 1, r)
		full.report(t, noon, 10, nil)
		full.allow(noon+ms, 1, r)
		if due := full.Due(noon + ms); due != noon+RefusedLag {
			t.Errorf("%v: asks after %v", r, time.Duration(due-noon))
		}
		if !full.Hear(noon+100*ms, *n) || full.Due(noon+100*ms) > noon+100*ms { // sooner than after a lag
			t.Errorf("%v: asks after %v", r, time.Duration(full.Due(noon+100*ms)-noon))
		}
		bound := NewAlone("k", r, link, noon)
		bound.Hear(noon, notice(r, noon, 10_000*ms))
		if !bound.Hear(noon+1000*ms, *n) || bound.notice != nil {
			t.Errorf("%v: still refuses", r)
		}
		if free := NewAlone("k", r, link, noon); free.Hear(noon, *n) {
			t.Errorf("%v: a key with room asks", r)
		}
	}
}

// A key that has asked for nothing since a refund, and whose refunded units have leaked meanwhile, has nothing
// to report. If a notice refuses it then, Redis is asked after a lag all the same, even without another check.
func TestLeakedRefundIsNotDue(t *testing.T) {
	r := funnelRule(t, 100, 100, time.Second) // a unit leaks in 10 ms
	c := NewAlone("k", r, hearing(t), noon)
	c.allow(noon, 5, r)
	c.report(t, noon, 5, nil)
	lag := c.Due(noon)
	c.Refund(noon+ms, 3, r)
	if due := c.Due(noon + ms); due > noon {
		t.Fatalf("reports a refund after %v", time.Duration(due-noon))
	}
	later := int64(noon + 60*ms)
	c.Hear(later, notice(r, later, 1000*ms))
	if ok, _, _ := c.allow(later, 1, r); ok {
		t.Fatal("the notice does not refuse")
	}
	if c.Collect(later, Normal) {
		t.Fatal("reports a refund that has leaked")
	}
	if due := c.Due(later); due != lag {
		t.Errorf("asks after %v, want %v", time.Duration(due-noon), time.Duration(lag-noon))
	}
}
