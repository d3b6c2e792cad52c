package counter

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// exchange reports all that c has to report, to an authority that counts for c alone.
func exchange(t *testing.T, c *Counter, now int64) {
	t.Helper()
	if c.Refresh(); c.part == nil {
		return
	}
	c.link().Drain(func(*Counter, bool) {})
	rep, ok := c.collect(now, Urgent)
	c.Collect(now, Normal) // out of the other queue as well
	if !ok {
		t.Fatal("nothing to ask")
	}
	r := rep.Rule
	level, buckets := c.replica().KnownState(arith.Of(r), now)
	level = arith.Of(r).Add(level, arith.Of(r).Cost(rep.Units)).Max(rep.Ahead)
	a := report.Answer{Rule: r, At: now, ServerNow: now, Slack: 1, State: report.State{Level: arith.Of(r).Sub(level, rep.Back), Buckets: append(buckets, rep.Buckets...)}}
	if out := c.Settle(now, a); out.Lost {
		t.Fatalf("%+v is a loss", a)
	}
}

// newAnswered returns a counter that knows its authority, if it is shared.
func newAnswered(t *testing.T, r *limit.Rule, shared bool, now int64) (*Counter, *Link) {
	t.Helper()
	if !shared {
		return NewAlone("k", r, nil, now), nil
	}
	link := newTestLink()
	link.Part(1).SetOffset(0, 1)
	c := NewAlone("k", r, link, now)
	exchange(t, c, now)
	return c, link
}

// After all that was reserved has been used, or cancelled, and has ceased to count, a key is
// as one without reservations: it has no history, decides the same, and has leases.
func TestHistoryIsDropped(t *testing.T) {
	rules := append(funnelsOfAllShapes(), windowRule(t, 10, time.Second, 10), limit.Must(limit.SlidingLog("log", 10, time.Second)))
	for _, r := range rules {
		for _, multiplier := range []int64{0, 1, MultiplierOpen, 3} { // 0: not shared
			if multiplier == 0 || arith.Of(r).Algorithm != arith.SlidingLog {
				historyIsDropped(t, r, multiplier)
			}
		}
	}
}

func historyIsDropped(t *testing.T, r *limit.Rule, multiplier int64) {
	t.Helper()
	now, h := int64(1e17), int64(arith.Of(r).Horizon())
	c, link := newAnswered(t, r, multiplier != 0, now)
	if link != nil {
		link.SetMode(multiplier, multiplier != 1)
	}
	for i := range 3 * int64(30) {
		_, b, _ := c.Reserve(now, 1+i%min(r.Limit(), 3), r, Terms{MaxDelay: 4 * h})
		if b != nil && i%3 == 0 {
			c.Cancel(now, r, b)
		}
		now += h / 20
	}
	if c.history == nil {
		t.Fatalf("%v, multiplier %d: no history with reservations", r, multiplier)
	}
	if link != nil {
		link.SetMode(1, false)
	}
	exchange(t, c, now) // what is reported as of an outage counts from now on
	now += 8 * h
	c.Check(now, 1, r)
	if exchange(t, c, now); c.history != nil {
		t.Errorf("%v, multiplier %d: history %+v", r, multiplier, c.past())
	}
	fresh, _ := newAnswered(t, r, link != nil, now)
	fresh.Check(now, 1, r)
	exchange(t, fresh, now)
	rng, leases := rand.New(rand.NewPCG(1, 2)), [2]int{}
	for range 200 {
		var got [2]bool
		for i, c := range []*Counter{c, fresh} {
			var leased bool
			if got[i], _, leased, _ = c.Allow(now, 1, r); leased {
				leases[i]++
			}
		}
		if got[0] != got[1] {
			t.Fatalf("%v, multiplier %d: decides %v, a fresh one %v", r, multiplier, got[0], got[1])
		}
		now += rng.Int64N(h / r.Limit())
	}
	if leases[0] != leases[1] || leases[0] == 0 && algorithm.IsWindow(r) {
		t.Errorf("%v, multiplier %d: %d leases, a fresh one has %d", r, multiplier, leases[0], leases[1])
	}
}

// A booking is handed back, once, as far as it still counts, however often the key was
// checked since. As soon as it does not, nothing is taken off what came later.
func TestBookingsThatCountAreKept(t *testing.T) {
	for seed := range uint64(400) {
		for _, r := range append(funnelsOfAllShapes(), windowRule(t, 10, time.Second, 10)) {
			for _, shared := range []bool{false, true} {
				bookingIsKept(t, r, shared, seed)
			}
		}
	}
}

func bookingIsKept(t *testing.T, r *limit.Rule, shared bool, seed uint64) {
	t.Helper()
	rng, now, h := rand.New(rand.NewPCG(seed, 81)), int64(1e17), int64(arith.Of(r).Horizon())
	c, _ := newAnswered(t, r, shared, now)
	ahead := arith.Of(r).Algorithm == arith.TokenBucket
	if n := rng.Int64N(r.Limit() + 1); ahead {
		c.Take(now, n, r)
	}
	n := 1 + rng.Int64N(r.Limit())
	res, b, _ := c.Reserve(now, n, r, Terms{MaxDelay: h})
	if b == nil {
		t.Fatalf("%v: %d units are not reserved: %+v", r, n, res)
	}
	end := arith.Span{NS: now + int64(res.ResetAfter)}
	if ahead {
		end = c.leaky().View
	}
	for until := now + rng.Int64N(2*h+int64(res.RetryAfter)+1); now < until; now += 1 + rng.Int64N(h/4) {
		c.Check(now, 0, r)
		if rng.IntN(2) == 0 {
			exchange(t, c, now)
		}
	}
	want := int64(0)
	switch {
	case ahead:
		want = min(n, arith.Of(r).WholeUp(arith.Of(r).Sub(end, arith.Span{NS: now})))
	case now < end.NS:
		want = n
	}
	later := r.Limit() - n
	if want == 0 {
		later = r.Limit() // all of them come after what was booked
	}
	later, _, _ = c.TakeAtMost(now, later, r)
	if want == 0 && later == 0 {
		t.Fatalf("%v, shared %v, seed %d: a booking that does not count is in the way", r, shared, seed)
	}
	before := c.peeked(now, r)
	if back, _, _ := c.Cancel(now, r, b); back != want {
		t.Fatalf("%v, shared %v, seed %d: %d units handed back, want %d of %d", r, shared, seed, back, want, n)
	}
	if ahead {
		if back, _, _ := c.Cancel(now, r, b); back != 0 {
			t.Fatalf("%v, shared %v, seed %d: handed back twice", r, shared, seed)
		}
	}
	if is := c.peeked(now, r); want == 0 && is != before {
		t.Fatalf("%v, shared %v, seed %d: %d remain, %d before", r, shared, seed, is, before)
	}
}

// peeked returns how many units are left.
func (c *Counter) peeked(now int64, r *limit.Rule) int64 {
	res, _ := c.peek(now, 0, r)
	return res.Remaining
}

// What was booked in an outage may count for as long as that lasts, and then until the bucket
// has run empty. After that nothing is taken off what came later.
func TestBookingsOfAnOutageAreKept(t *testing.T) {
	for _, multiplier := range []int64{MultiplierOpen, 1, 3} {
		for _, lasts := range []bool{true, false} {
			r, now := funnelRule(t, 10, 10, 10*time.Second), int64(1e17)
			h := int64(arith.Of(r).Horizon())
			c, link := newAnswered(t, r, true, now)
			link.SetMode(multiplier, true)
			_, b, _ := c.Reserve(now, 2, r, Terms{MaxDelay: h})
			for range 50 {
				now += h / 9
				c.Check(now, 0, r)
			}
			want := int64(2)
			if !lasts {
				link.SetMode(1, false)
				exchange(t, c, now)
				now += 2 * h
				c.Check(now, 0, r)
				exchange(t, c, now)
				c.Take(now, 5, r)
				want = 0
			}
			if multiplier > 0 && lasts {
				continue // they have leaked from the view, and are handed back to the authority alone
			}
			if back, _, _ := c.Cancel(now, r, b); back != want {
				t.Errorf("multiplier %d, outage lasts %v: %d units handed back, want %d", multiplier, lasts, back, want)
			}
			if left := c.peeked(now, r); !lasts && left != 5 {
				t.Errorf("multiplier %d: %d remain, want 5", multiplier, left)
			}
		}
	}
}

// A reset makes all bookings void for as long as they could count: those that wait, those of
// a window, and those of a counter that was forgotten meanwhile.
func TestBookingsFromBeforeAReset(t *testing.T) {
	for _, r := range []*limit.Rule{funnelRule(t, 10, 10, 10*time.Second), windowRule(t, 10, 10*time.Second, 10), limit.Must(limit.SlidingLog("log", 10, 10*time.Second))} {
		for _, again := range []bool{false, true} {
			for _, shared := range []bool{false, true} {
				if shared && arith.Of(r).Algorithm == arith.SlidingLog {
					continue
				}
				now := int64(1e17)
				c, _ := newAnswered(t, r, shared, now)
				_, b, _ := c.Reserve(now, 10, r, Terms{})
				if again {
					c, _ = newAnswered(t, r, shared, now)
				}
				if shared {
					c.Renew(now, r, report.Answer{State: report.State{Gen: 7, Born: 7}, At: now, ServerNow: now})
				} else {
					c.Set(now, 0, r)
				}
				for end := now + int64(8*time.Second); now < end; now += int64(time.Second) {
					c.Check(now, 0, r)
				}
				c.Take(now, 5, r)
				if back, _, _ := c.Cancel(now, r, b); back != 0 || c.peeked(now, r) != 5 {
					t.Errorf("%v, shared %v, made again %v: %d handed back, %d remain", r, shared, again, back, c.peeked(now, r))
				}
			}
		}
	}
}

// A booking ahead lasts longer if the rule becomes slower. A reset makes it void all the same.
func TestBookingsOfAFasterRuleFromBeforeAReset(t *testing.T) {
	fast, slow, now := funnelRule(t, 10, 10, 10*time.Second), funnelRule(t, 10, 10, 100*time.Second), int64(1e17)
	c := NewAlone("k", fast, nil, now)
	var b *Booking
	for range 5 {
		_, b, _ = c.Reserve(now, 10, fast, Terms{MaxDelay: int64(time.Minute)})
	}
	c.Set(now, 0, slow)
	for range 3 {
		now += int64(100 * time.Second)
		c.Check(now, 0, slow)
	}
	if c.history != nil {
		t.Errorf("history %+v", c.past())
	}
	c.Take(now, 5, slow)
	if back, _, _ := c.Cancel(now, slow, b); back != 0 || c.peeked(now, slow) != 5 {
		t.Errorf("%d handed back, %d remain", back, c.peeked(now, slow))
	}
}
