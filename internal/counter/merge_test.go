package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// shardOne puts every key into shard 1.
func shardOne(string) int { return 1 }

func newTestLink() *Link { return NewLink(pace(500*time.Millisecond), 4, shardOne) }

func TestFairShareMultipliesUnits(t *testing.T) {
	for _, r := range []*limit.Rule{funnelRule(t, 30, 30, time.Minute), windowRule(t, 30, time.Minute, 10)} {
		link := newTestLink()
		c := NewAlone("k", r, link, 1e12)
		for range 3 {
			c.allow(1e12, 1, r)
		}
		link.SetMode(3, true)
		got := 3
		for range 100 {
			if ok, src, _ := c.allow(1e12, 1, r); ok {
				got++
				if src != limit.SourceDegraded {
					t.Fatalf("source %v", src)
				}
			}
		}
		if got != 10 {
			t.Errorf("%v: a third of the fleet admitted %d of 30, want 10", r, got)
		}
		link.SetMode(MultiplierClosed, true)
		if res, _ := c.take(1e12, 1, r); res.Allowed || res.RetryAfter <= 0 || res.RetryAfter == limit.Never {
			t.Errorf("%v: closed: %+v", r, res)
		}
		link.SetMode(MultiplierOpen, true)
		for range 100 {
			if ok, _, _ := c.allow(1e12, 1, r); !ok {
				t.Fatalf("%v: refused though open", r)
			}
		}
		if ok, _, _ := c.allow(1e12, 31, r); ok {
			t.Errorf("%v: more than the limit in one request was admitted", r)
		}
	}
}

// A node's clock is ahead of the authority's by part of a bucket, and it learns much later,
// after a batch was sent again, in which bucket its units were booked. That is no loss; but
// that a part of them is missing is one, and also what was known before.
func TestUnitsBookedInAnOlderBucket(t *testing.T) {
	r := windowRule(t, 100, 10*time.Second, 10)
	second := int64(time.Second)
	for name, c := range map[string]struct {
		known []int64 // units by bucket, the oldest first; 3 were known in the first, 7 sent of the third
		lost  bool
	}{
		"booked on time":                 {[]int64{3, 0, 7, 0}, false},
		"booked earlier":                 {[]int64{3, 7, 0, 0}, false},
		"in parts, by a batch of others": {[]int64{3, 4, 3, 0}, false},
		"beside those of others":         {[]int64{4, 9, 0, 5}, false},
		"with what is known":             {[]int64{10, 0, 0, 0}, false},
		"lost":                           {[]int64{3, 0, 0, 0}, true},
		"partly lost":                    {[]int64{3, 6, 0, 0}, true},
		"lost, but others came later":    {[]int64{3, 0, 0, 9}, true},
		"what was known is lost":         {[]int64{0, 10, 0, 0}, true},
	} {
		link, now := newTestLink(), int64(1e18)
		link.Part(1).SetOffset(0, 1)
		k := NewAlone("k", r, link, now)
		settle := func(units ...int64) bool {
			var known []report.Bucket
			for i, n := range units {
				if n > 0 {
					known = append(known, report.Bucket{ID: int64(1e9) + int64(i), Units: n})
				}
			}
			return k.Settle(now, report.Answer{Rule: r, At: now, ServerNow: now, Slack: 1, State: report.State{Buckets: known}}).Lost
		}
		collect := func() {
			k.Refresh()
			k.asks(t, now)
		}
		collect()
		settle(3)
		now += 2 * second
		k.Take(now, 7, r)
		collect()
		now += second
		lost := settle(c.known...)
		total := int64(0)
		for _, u := range numbers(k.window(), "known") {
			total += u
		}
		want := c.known[0] + c.known[1] + c.known[2] + c.known[3]
		if lost != c.lost || !c.lost && total != want {
			t.Errorf("%s: lost %v, %d units known, want %v, %d", name, lost, total, c.lost, want)
		}
	}
}

// Fault 47: a lowered limit leaves 0, a raised one only the difference.
func TestRuleChangeKeepsUsage(t *testing.T) {
	now := int64(1e15)
	f := NewAlone("k", funnelRule(t, 10, 10, time.Hour), nil, now)
	f.allow(now, 8, f.Rule())
	if res, _ := f.peek(now, 0, funnelRule(t, 20, 10, time.Minute)); res.Remaining != 12 {
		t.Errorf("funnel, 8 used, now 20: %d remain", res.Remaining)
	}
	if res, _ := f.peek(now, 0, funnelRule(t, 5, 10, time.Minute)); res.Remaining != 0 {
		t.Errorf("funnel, lowered below its use: %d remain", res.Remaining)
	}
	w := NewAlone("k", windowRule(t, 10, time.Hour, 10), nil, now)
	w.allow(now, 8, w.Rule())
	if res, _ := w.peek(now, 0, windowRule(t, 20, 30*time.Minute, 5)); res.Remaining != 12 {
		t.Errorf("window, 8 used, now 20: %d remain", res.Remaining)
	}
}
