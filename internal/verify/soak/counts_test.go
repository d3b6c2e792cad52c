package main

import (
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// What Redis is asked for begins with the bucket that the window has not left.
func TestWindowsSince(t *testing.T) {
	sliding := limit.Must(limit.SlidingWindowBuckets("sliding", 5, 10*time.Second, 10))
	fixed := limit.Must(limit.FixedWindow("fixed", 5, 10*time.Second))
	for _, c := range []struct {
		rule      *limit.Rule
		now, want time.Duration
	}{
		{fixed, 20*time.Second - 1, 10 * time.Second},
		{fixed, 20 * time.Second, 20 * time.Second},
		{sliding, 20*time.Second - 1, 10 * time.Second},
		{sliding, 20 * time.Second, 11 * time.Second},
		{limit.Must(limit.TokenBucket("funnel", 1, time.Second, 5)), 20 * time.Second, 0},
	} {
		p := newSpec(c.rule)
		if since := p.since(time.Unix(0, int64(c.now))); since != int64(c.want) {
			t.Errorf("%v at %v: since %v, want %v", c.rule, c.now, time.Duration(since), c.want)
		}
	}
}

// What Redis counts is compared with what it must and may count: not more than
// was admitted, nor in a newer window, and what it must have been told.
func TestVerify(t *testing.T) {
	window := limit.Must(limit.SlidingWindow("w", 1<<40, 4*time.Second))
	since := func(s int) int64 { return when(s) }
	for _, c := range []struct {
		name  string
		rule  *limit.Rule
		c     count
		final bool
		loss  bool
		want  string
	}{
		{"all", quota(1 << 40), count{units: 995}, true, false, ""},
		{"not yet told", quota(1 << 40), count{units: 5 * (199 - testAge)}, false, false, ""},
		{"too little", quota(1 << 40), count{units: 5*(199-testAge) - 1}, false, false, "must have been told of 945"},
		{"too little at the end", quota(1 << 40), count{units: 994}, true, false, "told of 995"},
		{"too much", quota(1 << 40), count{units: 996}, false, false, "only 995"},
		{"lost", quota(1 << 40), count{units: 5}, false, true, ""},
		{"lost, and too much", quota(1 << 40), count{units: 996}, false, true, "only 995"},
		{"broken", quota(1 << 40), count{err: errors.New("oh")}, false, false, "oh"},
		{"poisoned", quota(1 << 40), count{err: errors.New("oh")}, false, true, ""},
		// T + grace and the date of a unit are 20.5 slots: those from 121 on must count.
		{"window", window, count{units: 5 * 80, since: since(100)}, true, false, ""},
		{"window, too little", window, count{units: 5*80 - 1, since: since(100)}, true, false, "told of"},
		// T + grace is 17.5 slots: those from 83 on may count.
		{"window, a little early", window, count{units: 5 * 118, since: since(100)}, true, false, ""},
		{"window, too much", window, count{units: 5*118 + 1, since: since(100)}, true, false, "only"},
		// A process that has not been answered may count all of a bucket as late.
		{"window at the start", window, count{units: 995, since: since(20)}, true, false, ""},
	} {
		b := newBout(c.rule, 2)
		b.admit(2, 3)
		b.run(199, turn{})
		rd := reading{from: 201, to: 201, final: c.final, counts: []count{c.c}}
		b.foresee(&rd)
		b.admit(0, 0)
		if c.loss {
			b.run(1, turn{losses: []int{0}})
		}
		b.run(2, turn{})
		b.verify(&rd)
		if c.want == "" && len(b.breaches) > 0 || c.want != "" && !b.broken(c.want) {
			t.Errorf("%s: %q", c.name, b.breaches)
		}
	}
}

// A funnel in Redis is compared, too: it must hold what it was told of and has not leaked.
func TestVerifyFunnel(t *testing.T) {
	for _, c := range []struct {
		units float64
		want  bool
	}{{167, false}, {166, true}} {
		b := newBout(limit.Must(limit.TokenBucket("f", 50, time.Second, 1000)), 1)
		b.admit(2) // and one of them leaks
		b.run(199, turn{})
		rd := reading{from: 201, to: 201, counts: []count{{units: c.units}}}
		b.foresee(&rd)
		b.run(2, turn{})
		b.verify(&rd)
		if got := b.broken("told of"); got != c.want {
			t.Errorf("%v: %q", c.units, b.breaches)
		}
	}
}

// What was booked, and not acknowledged when Redis lost it, may be booked once more:
// others may have told Redis of it. No more of a key than may not have been acknowledged.
func TestBookedTwice(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(2, 3)
	b.run(199, turn{})
	if got := b.most(&b.keys[0], 0, b.now); got != 995 {
		t.Errorf("before: at most %v", got)
	}
	b.run(1, turn{losses: []int{wholeLoss}, twice: [][]int64{{4, 1000}}})
	if got, want := b.most(&b.keys[0], 0, b.now), 1000+4+3*(testAge+1); got != float64(want) {
		t.Errorf("at most %v, want %v", got, want)
	}
}

// As long as it is not known what may be booked twice, what need not have been acknowledged
// is remembered: it may be long until a busy machine has compared the ledgers.
func TestBookedTwiceIsToldLate(t *testing.T) {
	for _, x := range []turn{{losses: []int{wholeLoss}}, {pardon: []int{0}}} {
		b := newBout(quota(1<<40), 1)
		b.admit(2)
		b.run(199, turn{})
		b.admit(0)
		for range 3 * testAge {
			b.run(1, x)
		}
		x.twice = [][]int64{{1000}}
		b.run(1, x)
		if got, want := b.most(&b.keys[0], 0, b.now), 398+2*testAge; got != float64(want) {
			t.Errorf("%+v: at most %v, want %v", x, got, want)
		}
	}
}
