package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// quota is a leaky bucket whose times have room in a word only in steps of 64 ns.
func quota(t *testing.T) *limit.Rule {
	r := funnelRule(t, 1000, 1000, 90*24*time.Hour)
	if n, ok := coarseOf(&arith.Of(r.Arith()).Ticks); n != 6 || !ok {
		t.Fatalf("counts in 1<<%d ticks: %v", n, ok)
	}
	return r
}

// A quota of months admits all that it holds at one moment, however often its lease is
// revoked meanwhile, and over time no unit earlier than an exact one does by more than
// one unit of the word's time.
func TestQuotasAreOnTime(t *testing.T) {
	r, now := quota(t), int64(1e12)+7
	c := NewAlone("k", r, nil, now)
	got := int64(0)
	for i := range r.Limit() + 10 {
		ok := false
		if i%2 == 0 {
			ok, _, _, _ = c.Allow(now, 1, r)
		} else {
			ok, _, _ = c.Check(now, 1, r)
		}
		if ok {
			got++
		}
	}
	if got != r.Limit() {
		t.Errorf("%d units at one moment, want %d", got, r.Limit())
	}
	const step = 64 // ns, as a tick is one
	exact := NewAlone("k", r, nil, now)
	exact.entry = nil
	exact.Check(now, r.Limit(), r)
	for i := range 200 {
		for range 100 {
			c.lock(now)
			c.unlock()
		}
		res, _ := exact.peek(now, 1, r)
		now += int64(res.RetryAfter)
		if ok, _, _, _ := c.Allow(now-2*step, 1, r); ok {
			t.Fatalf("unit %d is early by more than %d ns", i, step)
		}
		if ok, _, _, _ := c.Allow(now, 1, r); !ok {
			t.Fatalf("unit %d is late", i)
		}
		exact.Check(now, 1, r)
	}
}

// A leaky bucket whose unit takes no whole number of steps would be charged too little for each,
// and times too far ahead have no room.
func TestNoLeaseInPartsOfAStep(t *testing.T) {
	r, now := funnelRule(t, 7, 1, 90*24*time.Hour+1), int64(1e12)
	if newLease(r, now, limit.SourceLocal, alone, 0) != nil {
		t.Errorf("%v: a lease that rounds the cost of a unit", r)
	}
	if newLease(slow(5), leaseLatest+1, limit.SourceLocal, alone, 0) != nil || newLease(slow(5), -1, limit.SourceLocal, alone, 0) != nil {
		t.Error("a lease at a time without room")
	}
}

// A key that has been asked for long goes on refusing without its counter.
func TestRefusalsOfOldLeases(t *testing.T) {
	r, now := quota(t), int64(1e12)
	c := NewAlone("k", r, nil, now)
	c.Check(now, r.Limit(), r)
	for range 20 {
		c.Check(now, 1, r)
		if v := byLease(c, r, 1, now); v != Refused {
			t.Fatalf("%v after %v", v, time.Duration(now-1e12))
		}
		now += int64(r.Period()) / r.Limit() // a unit leaks
		if ok, _, _, _ := c.Allow(now, 1, r); !ok {
			t.Fatal("refused")
		}
		for range 23 {
			now += int64(r.Period()) / r.Limit()
			c.Check(now, 1, r)
		}
	}
}
