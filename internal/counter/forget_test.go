package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// In an outage nobody can be told of units. Those that leaked long ago must
// not keep their counters for ever. They are dropped with the counter, not before.
func TestDrainedFunnelIsNotPinned(t *testing.T) {
	r := funnelRule(t, 10, 10, time.Second)
	link := newTestLink()
	now := int64(1e15)
	c := NewAlone("k", r, link, now)
	c.allow(now, 5, r)
	wantRetention(t, c, now+int64(10*time.Second), Unreported) // the authority may yet be told
	link.SetMode(3, true)
	wantRetention(t, c, now+int64(time.Second), Unreported)
	// 3 s are more than half a drain and a whole one.
	if wantRetention(t, c, now+int64(3*time.Second), Idle); link.Expired.Load() != 0 || c.pendUnits() != 5 {
		t.Errorf("%d units expired, %d pending, by a look", link.Expired.Load(), c.pendUnits())
	}
	if _, ok := c.Drop(Used, now+int64(3*time.Second)); !ok || link.Expired.Load() != 5 || c.pendUnits() != 0 {
		t.Errorf("%d units expired, %d pending", link.Expired.Load(), c.pendUnits())
	}
}

// The authority may hold what a limit allowed before it was lowered. Units that came then are on top of that, and are
// kept for as long as that takes to leak: until they are booked, and no longer.
//
// Fault 47: units of before are not dropped by the limit of now.
func TestLimitOfBeforeEnds(t *testing.T) {
	was, is := funnelRule(t, 10, 10, time.Second), funnelRule(t, 1, 10, time.Second)
	for _, booked := range []bool{false, true} {
		link, now := newTestLink(), int64(1e15)
		c := NewAlone("k", was, link, now)
		c.allow(now, 5, was)
		c.allow(now, 0, is)
		rep, _ := c.collect(now, Normal)
		if booked {
			c.Settle(now, report.Answer{Rule: is, State: report.State{Level: rep.Ahead}, At: now, ServerNow: now})
		} else {
			c.Quarantine(now, false)
		}
		link.SetMode(1, true)
		now += int64(600 * time.Millisecond) // all has leaked
		want := Unreported
		if booked {
			c.allow(now, 1, is)
			now += int64(100 * time.Millisecond)
			want = Idle
		}
		wantRetention(t, c, now+int64(500*time.Millisecond), want)
	}
}

func wantRetention(t *testing.T, c *Counter, now int64, want Retention) {
	t.Helper()
	if w := c.Retention(now); w != want {
		t.Errorf("retention %d, want %d", w, want)
	}
}

// Drop revokes a lease before it looks at what the counter holds, also one that has admitted nothing
// yet: it could admit a unit between the look and the drop, and that unit would be lost. A check that
// has read the lease before then finds another one, and goes to the counter.
func TestDropRevokesTheLeaseFirst(t *testing.T) {
	now := time.Unix(1_700_000_000, 0).UnixNano()
	c := NewAlone("k", limit.Must(limit.TokenBucket("f", 1, time.Minute, 10)), nil, now)
	if res, ok := c.Take(now, 1, c.Rule()); !ok || !res.Allowed {
		t.Fatal(res, ok)
	}
	was := c.entry.word.Load()
	if c.granted == 0 || c.usedLocked() != 0 {
		t.Fatalf("there is no lease that was not used: granted %d", c.granted)
	}
	if d, ok := c.Drop(Idle, now); ok || d.Retention != Used {
		t.Fatalf("%+v, %v", d, ok)
	}
	is := c.entry.word.Load()
	if c.granted == 0 || is&generationMask == was&generationMask {
		t.Errorf("after a counter was looked at and stays, its lease is %x and was %x: a new one is wanted", is, was)
	}
}
