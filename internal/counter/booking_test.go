package counter

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// use is units that a caller may use from some time on.
type use struct {
	at, n  int64
	booked *Booking // nil: taken at once
}

// funnelsOfAllShapes are small and large, slow and fast, and some whose rates are
// no whole number of nanoseconds.
func funnelsOfAllShapes() []*limit.Rule {
	return []*limit.Rule{
		limit.Must(limit.TokenBucket("one", 1, time.Second, 1)),
		limit.Must(limit.TokenBucket("even", 100, 10*time.Second, 100)),
		limit.Must(limit.TokenBucket("odd", 7, 3*time.Second, 10)),
		limit.Must(limit.TokenBucket("odder", 997, time.Second, 41)),
		limit.Must(limit.TokenBucket("fast", 10_000_000, time.Second, 3000)),
		limit.Must(limit.TokenBucket("slow", 3, 30*24*time.Hour, 5)),
	}
}

// neverTooMuch fails if more than the capacity and what leaks meanwhile was usable
// between any two times. A delay is in whole nanoseconds, rounded up: up to
// one more leaks before the first of them.
func neverTooMuch(t *testing.T, r *limit.Rule, uses []use) {
	t.Helper()
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.at, b.at) })
	for i, from := range uses {
		sum := int64(0)
		for _, to := range uses[i:] {
			sum += to.n
			if most := arith.Of(r).Add(arith.Of(r).Full, arith.Span{NS: to.at - from.at + 1}); most.Less(arith.Of(r).Cost(sum)) {
				t.Fatalf("%v: %d units were usable within %v", r, sum, time.Duration(to.at-from.at))
			}
		}
	}
}

// Whatever is reserved, cancelled before it is due, then or later, and refunded:
// at no instant, and in no interval, are more units usable than the capacity and
// what leaks meanwhile. What was cancelled or refunded was not used.
//
// Fault 79: a reservation cancelled when due with others behind it; a refund with a queue behind.
func TestHandedBackOnce(t *testing.T) {
	for seed := range uint64(2000) {
		for _, r := range funnelsOfAllShapes() {
			m := &wasteful{rng: rand.New(rand.NewPCG(seed, 79)), c: NewAlone("k", r, nil, 0), r: r, now: start.UnixNano()}
			for range 120 {
				m.step()
			}
			neverTooMuch(t, r, m.uses)
		}
	}
}

// wasteful is a caller who asks for units of a leaky bucket, and does not use all that it gets.
type wasteful struct {
	rng  *rand.Rand
	c    *Counter
	r    *limit.Rule
	now  int64
	uses []use
}

// step does one thing that a caller may do.
func (m *wasteful) step() {
	n := 1 + m.rng.Int64N(m.r.Limit())
	if m.rng.IntN(2) == 0 {
		n = 1 + m.rng.Int64N(min(m.r.Limit(), 3))
	}
	switch m.rng.IntN(8) {
	case 0, 1:
		if res, _ := m.c.Ask(m.now, n, m.r, true); res.Allowed {
			m.uses = append(m.uses, use{at: m.now, n: n})
		}
	case 2, 3:
		if res, b, _ := m.c.Reserve(m.now, n, m.r, Terms{MaxDelay: int64(4 * arith.Of(m.r).Horizon())}); b != nil {
			m.uses = append(m.uses, use{at: m.now + int64(res.RetryAfter), n: n, booked: b})
		}
	case 4, 5:
		if i := len(m.uses) - 1 - m.rng.IntN(6); i >= 0 && m.uses[i].booked != nil {
			m.c.Cancel(m.now, m.r, m.uses[i].booked)
			m.uses = slices.Delete(m.uses, i, i+1)
		}
	case 6:
		// The newest units are handed back: those of a call that was just made.
		i := len(m.uses) - 1
		for i >= 0 && m.uses[i].at > m.now {
			i--
		}
		if i >= 0 && m.uses[i].at == m.now && m.uses[i].booked == nil {
			m.c.Refund(m.now, m.uses[i].n, m.r)
			m.uses = slices.Delete(m.uses, i, i+1)
		}
	case 7:
		m.wait()
	}
}

// wait lets time pass: often until something is due.
func (m *wasteful) wait() {
	due := m.now
	for _, u := range m.uses {
		if u.at > m.now && (due == m.now || m.rng.IntN(2) == 0) {
			due = u.at
		}
	}
	if due == m.now || m.rng.IntN(3) == 0 {
		due = m.now + 1 + m.rng.Int64N(int64(arith.Of(m.r).Horizon()))
	}
	m.now = due
}

// The last of those who wait gives up: all of its units come back. Then the others do, in any order: nothing is left of
// it. Also if a unit takes no whole number of ns to leak.
func TestGivenUpByAll(t *testing.T) {
	for seed := range uint64(300) {
		for _, r := range funnelsOfAllShapes() {
			for _, shared := range []bool{false, true} {
				rng, now := rand.New(rand.NewPCG(seed, 80)), start.UnixNano()
				c, _ := newAnswered(t, r, shared, now)
				c.Ask(now, r.Limit(), r, true)
				full := c.leaky().View
				var waiting []*Booking
				for range rng.IntN(9) {
					_, b, _ := c.Reserve(now, 1+rng.Int64N(r.Limit()), r, Terms{MaxDelay: int64(arith.MaxWindow)})
					waiting = append(waiting, b)
					now += rng.Int64N(arith.Of(r).Cost(1).NS/10 + 1)
				}
				before, n := c.leaky().View, 1+rng.Int64N(r.Limit())
				_, last, _ := c.Reserve(now, n, r, Terms{MaxDelay: int64(arith.MaxWindow)})
				if back, _, _ := c.Cancel(now, r, last); back != n || c.leaky().View != before {
					t.Fatalf("seed %d, %v, shared %t: %d of %d units come back", seed, r, shared, back, n)
				}
				rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
				for _, b := range waiting {
					c.Cancel(now, r, b)
				}
				if c.leaky().View != full || len(c.past().booked) > 0 {
					t.Fatalf("seed %d, %v, shared %t: empty %v later than before, %d bookings", seed, r, shared, arith.Of(r).Sub(c.leaky().View, full), len(c.past().booked))
				}
			}
		}
	}
}

// In an outage a reservation waits behind a request that is larger than the node's share. The
// limit is raised, and the two count as more: the reservation can be cancelled all the same.
func TestCancelledAfterTheLimitWasRaised(t *testing.T) {
	plan := func(l int64) *limit.Rule { return funnelRule(t, l, 1, time.Second) }
	small, large, now := plan(2), plan(7), int64(1e15)
	k := NewAlone("k", small, newTestLink(), now)
	k.link().SetMode(4, true)
	k.Take(now, 2, small)
	_, booked, _ := k.Reserve(now, 2, small, Terms{MaxDelay: int64(time.Minute)})
	if booked == nil {
		t.Fatal("nothing is booked")
	}
	k.peek(now, 1, large)
	if back, _, _ := k.Cancel(now, large, booked); back != 2 || k.Unsynced() != 2 {
		t.Errorf("%d of 2 units come back, and %d are to be reported, want the 2 that were taken", back, k.Unsynced())
	}
}
