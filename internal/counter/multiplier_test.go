package counter

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// After an outage units keep the multiplier that they had in it until they are reported: until
// then no node knows what the others have admitted.
func TestMultiplierLastsUntilTheAnswer(t *testing.T) {
	for _, r := range []*limit.Rule{funnelRule(t, 30, 30, time.Hour), windowRule(t, 30, time.Hour, 10)} {
		link := newTestLink()
		now := int64(1e15)
		c := NewAlone("k", r, link, now)
		link.SetMode(3, true)
		got := int64(0)
		take := func() {
			for range 100 {
				if ok, _, _ := c.allow(now, 1, r); ok {
					got++
				}
			}
		}
		take()
		link.SetMode(1, false)
		take()
		if got != 10 {
			t.Errorf("%v: %d units admitted before the answer, want 10", r, got)
		}
		rep, ok := c.collect(now, Normal)
		if !ok || rep.Units != got {
			t.Fatalf("%v: reports %+v", r, rep)
		}
		a := report.Answer{Rule: r, At: now, ServerNow: now, State: report.State{Level: arith.Of(r).Cost(10), Buckets: rep.Buckets}}
		c.Settle(now, a)
		take()
		if got != 30 {
			t.Errorf("%v: %d units admitted after the answer, want 30", r, got)
		}
	}
}

// A request that is larger than a node's share counts as no more than the limit. What is
// handed back of it must not come off at the full multiplier of each unit: else a node that
// asks for much and hands most of it back is admitted the whole limit.
func TestRefundOfACappedMultiplier(t *testing.T) {
	const multiplier = 5
	for _, test := range []struct {
		r     *limit.Rule
		every time.Duration // so long what was kept of a request leaves no room for another
	}{
		{funnelRule(t, 10, 10, 10*time.Second), 5 * time.Second},
		{windowRule(t, 10, 10*time.Second, 10), 10 * time.Second},
	} {
		for _, fails := range []bool{false, true} {
			now := int64(1e15)
			c := NewAlone("k", test.r, newTestLink(), now)
			c.link().SetMode(multiplier, true)
			kept := time.Duration(0)
			for range 1000 {
				before := c.Unsynced()
				if res, _ := c.Take(now, 5, test.r); res.Allowed {
					if fails {
						c.Collect(now, Normal)
						c.Quarantine(now, false)
					}
					c.Refund(now, 3, test.r)
					c.Refund(now, 1, test.r)
					if kept++; c.Unsynced() != before+1 {
						t.Fatalf("%v: %d units are to be reported, want one more than %d", test.r, c.Unsynced(), before)
					}
				}
				now += int64(100 * time.Millisecond)
			}
			if least, most := 90*time.Second/test.every, 110*time.Second/test.every; kept < least || kept > most {
				t.Errorf("%v, reports fail %v: %d units admitted and kept, want %d to %d", test.r, fails, kept, least, most)
			}
		}
	}
}

// What a capped request counts less than its units would is forgotten when it has leaked,
// and when the authority has answered.
func TestCappedMultiplierIsForgotten(t *testing.T) {
	for _, answered := range []bool{false, true} {
		r := funnelRule(t, 10, 10, 10*time.Second)
		now := int64(1e15)
		c := NewAlone("k", r, newTestLink(), now)
		c.link().SetMode(5, true)
		c.Take(now, 10, r)
		if answered {
			c.Collect(now, Normal)
			c.Settle(now, report.Answer{Rule: r, At: now, ServerNow: now})
		}
		now += int64(10 * time.Second)
		c.Take(now, 1, r)
		c.Take(now, 1, r)
		c.Refund(now, 1, r)
		if res, _ := c.Take(now, 0, r); res.Remaining != 1 {
			t.Errorf("answered %v: %d units remain, want the one that was handed back", answered, res.Remaining)
		}
	}
}

// The limit is lowered, and more nodes are known of: that caps what a large request counts as at
// the lower limit. When the limit is raised again the request counts up to that.
func TestCappedRequestCountsAgainAfterALowerLimit(t *testing.T) {
	small, large, now := funnelRule(t, 2, 1, time.Second), funnelRule(t, 8, 1, time.Second), int64(1e15)
	k := NewAlone("k", large, newTestLink(), now)
	k.link().SetMode(4, true)
	k.Take(now, 3, large)
	k.peek(now, 1, small)
	k.link().SetMode(5, true)
	k.peek(now, 1, small)
	if res, _ := k.Take(now, 1, large); res.Allowed {
		t.Error("a node that has admitted more than its share admits another unit")
	}
}

// cappedRequests is what an outage counts of requests under limits that change: slow and obviously
// right. Each counts as many times as there are nodes, but as no more than the largest limit that
// there has been since, as long as something counts.
type cappedRequests []struct{ at, n, most int64 }

// until returns when all has leaked, a unit a second.
func (list cappedRequests) until(multiplier int64) (end int64) {
	for _, q := range list {
		end = max(end, q.at) + min(q.n*multiplier, q.most)*int64(time.Second)
	}
	return end
}

// Fault 47: a limit is raised in an outage, again and again.
func TestCappedRequestsAgainstTheModel(t *testing.T) {
	for seed := range uint64(500) {
		rng, now, list := rand.New(rand.NewPCG(seed, 3)), int64(1e15), cappedRequests{}
		multiplier, capacity := 2+rng.Int64N(6), 1+rng.Int64N(20)
		k := NewAlone("k", funnelRule(t, capacity, 1, time.Second), newTestLink(), now)
		k.link().SetMode(multiplier, true)
		for range 60 {
			now += rng.Int64N(3*int64(time.Second)) / (1 + rng.Int64N(5))
			if rng.IntN(3) == 0 {
				capacity = 1 + rng.Int64N(20)
			}
			if list.until(multiplier) < now {
				list = nil
			}
			for i := range list {
				list[i].most = max(list[i].most, capacity)
			}
			n := 1 + rng.Int64N(1+rng.Int64N(capacity))
			fits := append(list, struct{ at, n, most int64 }{now, n, capacity})
			want := fits.until(multiplier) <= now+capacity*int64(time.Second)
			if want {
				list = fits
			}
			res, _ := k.Take(now, n, funnelRule(t, capacity, 1, time.Second))
			if end := now + int64(res.ResetAfter); res.Allowed != want || end != max(list.until(multiplier), now) {
				t.Fatalf("seed %d: %d of %d units: allowed %v, want %v; empty in %v, want %v",
					seed, n, capacity, res.Allowed, want, res.ResetAfter, time.Duration(max(list.until(multiplier)-now, 0)))
			}
		}
	}
}
