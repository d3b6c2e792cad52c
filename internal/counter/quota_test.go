package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// quota is a leaky bucket that holds more, when it is full, than has room in a word.
func quota(t *testing.T) *limit.Rule {
	r := funnelRule(t, 1000, 1000, 90*24*time.Hour)
	if l := newLease(leaseTerms{r, alone, 0, limit.SourceLocal}, 1e12); l.full >= arith.Of(r).Ticks.Full {
		t.Fatalf("filled up to %d ticks by a lease", l.full)
	}
	return r
}

// A quota of months decides by leases as far as they have room, and as exactly as without any,
// however often they are revoked.
func TestQuotasAreExact(t *testing.T) {
	r, now := quota(t), int64(1e12)+7
	c, exact := NewAlone("k", r, nil, now), NewAlone("k", r, nil, now)
	exact.entry = nil
	leased := int64(0)
	for i := range 3 * r.Limit() {
		ok, _, byLease, _ := c.Allow(now, 1, r)
		if want, _, _ := exact.Check(now, 1, r); ok != want {
			t.Fatalf("check %d: %v, by a lease: %v", i, ok, byLease)
		}
		if byLease && ok {
			leased++
		}
		if i%100 == 99 {
			c.lock(now)
			c.unlock()
		}
		if i > r.Limit() {
			res, _ := exact.peek(now, 1, r)
			now += int64(res.RetryAfter) - i%2
		}
	}
	if least := timeMost / 2 / arith.Of(r).Ticks.One; leased < least*9/10 {
		t.Errorf("%d units by leases, there is room for %d", leased, least)
	}
}

// There is no lease of a rule whose unit takes more time than a word can tell, nor at times too
// far ahead.
func TestNoLeaseWithoutRoom(t *testing.T) {
	r, now := funnelRule(t, 2, 1, 48*time.Hour), int64(1e12)
	if newLease(leaseTerms{r, alone, 0, limit.SourceLocal}, now) != nil {
		t.Errorf("%v: a lease without room for a unit", r)
	}
	if newLease(leaseTerms{slow(5), alone, 0, limit.SourceLocal}, leaseLatest+1) != nil || newLease(leaseTerms{slow(5), alone, 0, limit.SourceLocal}, -1) != nil {
		t.Error("a lease at a time without room")
	}
}
