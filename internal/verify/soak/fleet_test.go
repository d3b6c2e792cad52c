package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// When nothing is wrong a node must know what the others had admitted 2·R ago:
// R until it is booked, R until it is seen.
func TestKnownWhenNothingIsWrong(t *testing.T) {
	b := newBout(quota(1<<40), 3)
	b.admit(1, 2, 3)
	b.run(200, turn{})
	b.must(t, "calm", 0, 200+5*(200-2*testAge))
	b.must(t, "calm", 2, 600+3*(200-2*testAge))
	b.admit(0, 2, 3) // node 0 only refuses: its view is of when it admitted last
	b.nodes[0].items[0].offered = 1
	b.run(refreshSlots+testAge+50, turn{}) // and is then refreshed, but later
	b.must(t, "refusing", 0, 200+5*(200+50-testAge))
	if len(b.breaches) > 0 {
		t.Errorf("%q", b.breaches)
	}
}

// A quota is broken in the very slot in which somebody admits what he must know
// is not there.
func TestExcess(t *testing.T) {
	b := newBout(quota(1000), 2)
	b.admit(5, 5)
	b.run(110, turn{})
	if len(b.breaches) > 0 || b.worst.admitted != 1100 || b.worst.bound != 1100 {
		t.Errorf("own 550 and 450 of the other: %+v, %q", b.worst, b.breaches)
	}
	b.run(1, turn{})
	if !b.broken("quota") {
		t.Errorf("5 units too many went unnoticed: %+v", b.worst)
	}
}

// During an outage of one node the others need not know more of it than
// before, and it no more of them; afterwards they must.
func TestKnownInAnOutage(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(1, 1)
	b.run(100, turn{})
	b.nodes[1].cause = true
	b.run(50, turn{})
	b.must(t, "node 1 away", 0, 150+100-testAge)
	b.must(t, "node 1 away", 1, 150+100-2*testAge)
	b.nodes[1].cause = false
	b.run(testAge, turn{})
	b.must(t, "node 1 just back", 0, 160+100-testAge)
	b.run(2*testAge, turn{})
	b.must(t, "node 1 back", 0, 180+180-2*testAge)
	b.must(t, "node 1 back", 1, 180+180-2*testAge)
}

// Those that are cut off admit their shares, together one limit; who has heard of
// Redis since has another.
func TestSharesOfAnOutage(t *testing.T) {
	for _, c := range []struct {
		name  string
		units int32
		nodes int // that each believes in
		heals bool
		want  bool
	}{
		{"their shares", 5, 4, false, false},
		{"more", 6, 4, false, true},
		{"alone, for all it knows", 20, 1, false, false},
		{"more than alone", 21, 1, false, true},
		{"healed meanwhile", 6, 4, true, false},
	} {
		b := newBout(limit.Must(limit.SlidingWindow("w", 1000, 10*time.Second)), 4)
		for i := range b.nodes {
			b.nodes[i].items = []asked{{offered: c.units, apart: c.units}}
			b.nodes[i].mode, b.nodes[i].nodes, b.nodes[i].sealed, b.nodes[i].cause = hybrid.Degraded, c.nodes, true, true
		}
		for range 50 {
			b.run(1, turn{})
			b.nodes[0].sealed = !c.heals || b.now%8 > 0
		}
		if got := b.broken("shares"); got != c.want {
			t.Errorf("%s: %v, %.1q", c.name, got, b.breaches)
		}
		if active := b.steps[checkOutage] > 10; active == c.heals {
			t.Errorf("%s: active in %d steps", c.name, b.steps[checkOutage])
		}
	}
}

// What a process had not reported when it crashed is lost; one that ends in
// order has reported all.
func TestCrash(t *testing.T) {
	for _, end := range []kind{died, left} {
		b := newBout(quota(1<<40), 2)
		b.admit(1, 1)
		b.run(100, turn{})
		b.run(51, turn{}, happens(1, end))
		want := map[kind]float64{died: 100 - testAge, left: 100}[end]
		b.must(t, fmt.Sprint("kind ", end), 0, want+100+51)
		rd := reading{final: true, counts: []count{{}}}
		b.foresee(&rd)
		if most := b.most(&b.keys[0], 0, b.now); rd.least[0] != want+151 || most != 251 {
			t.Errorf("kind %v: Redis must count %v to %v", end, rd.least[0], most)
		}
	}
}

// A new process knows nothing until it has been answered, and nothing of the
// last one by itself.
func TestNewProcess(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(1, 1)
	b.run(100, turn{})
	b.run(1, turn{}, happens(1, died))
	b.run(1, turn{}, happens(1, born))
	b.run(testAge, turn{})
	b.must(t, "new", 1, 1+testAge)
	b.run(20, turn{})
	b.must(t, "answered", 1, 31+(132-2*testAge)+(100-testAge))
}

// After a loss what was not known to others may be gone, and what is admitted
// until all is told anew; then all is as before.
func TestLoss(t *testing.T) {
	for _, key := range []int{wholeLoss, 0} {
		b := newBout(quota(1<<40), 2)
		b.admit(1, 1)
		b.run(100, turn{})
		b.run(1, turn{losses: []int{key}})
		b.nodes[0].losses, b.nodes[1].losses = 1, 1
		settle := beatSlots + refreshSlots + 3*testAge
		b.run(settle-1, turn{})
		b.must(t, "before it is mended", 0, float64(2*(100-2*testAge)+settle-1))
		b.run(100, turn{})
		if b.keys[0].Losing() {
			t.Fatal("never mended")
		}
		// What both knew is restored, and what was admitted since it was mended counts.
		own := float64(b.now - b.keys[0].mended)
		b.must(t, "mended", 0, float64(2*(100-2*testAge))+own+own-2*testAge)
		if key == wholeLoss && len(b.breaches) > 0 {
			t.Errorf("%q", b.breaches)
		}
	}
}

// A loss is not mended while a node is away that could still raise what it
// knows, nor while one has not been asked for a lost key.
func TestLossIsOpenUntilAllAreBack(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(1, 1)
	b.run(100, turn{})
	b.nodes[1].cause = true
	b.run(500, turn{losses: []int{wholeLoss}})
	if !b.keys[0].Losing() {
		t.Error("mended while a node is away")
	}
	b = newBout(quota(1<<40), 2)
	b.admit(1, 0)
	b.run(100, turn{})
	b.run(500, turn{losses: []int{0}})
	if !b.keys[0].Losing() {
		t.Error("mended while a node does not ask")
	}
	b.admit(1, 1)
	b.run(100, turn{})
	if b.keys[0].Losing() {
		t.Error("not mended")
	}
}

// A process that begins while Redis is being told what it has lost may have
// been told too little. Later it must know all.
func TestNewProcessAfterALoss(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(1, 1)
	b.run(100, turn{})
	b.run(1, turn{}, happens(1, died))
	b.run(1, turn{losses: []int{wholeLoss}}, happens(1, born))
	b.run(3*testAge, turn{})
	b.must(t, "too early", 1, 3*testAge)
	b.nodes[0].losses = 1
	b.run(300, turn{})
	if got, _ := b.known(0, 1); got < 300 {
		t.Errorf("long after: the new process must count %v", got)
	}
}

func TestStates(t *testing.T) {
	for _, c := range []struct {
		name, want string
		play       func(b *bout)
	}{
		{"late", "still resyncing", func(b *bout) {
			b.nodes[0].cause = true
			b.run(10, turn{})
			b.nodes[0].cause, b.nodes[0].mode = false, hybrid.Resyncing
			b.run(capSlots+2, turn{})
		}},
		{"not late", "", func(b *bout) {
			b.nodes[0].cause = true
			b.run(10, turn{})
			b.nodes[0].cause, b.nodes[0].mode = false, hybrid.Resyncing
			b.run(capSlots, turn{})
		}},
		{"no cause", "degraded although", func(b *bout) {
			b.nodes[0].mode = hybrid.Degraded
			b.run(1, turn{})
		}},
		{"a loss that is none", "where there was none", func(b *bout) {
			b.nodes[0].losses = 1
			b.run(1, turn{})
		}},
		{"a ledger deleted", "", func(b *bout) {
			b.run(10, turn{pardon: []int{0}})
			b.nodes[0].losses = 1
			b.run(1, turn{})
		}},
		{"a ledger deleted in an outage", "", func(b *bout) {
			b.nodes[0].cause = true
			b.run(2*capSlots, turn{pardon: []int{0}})
			b.nodes[0].cause, b.nodes[0].losses = false, 1
			b.run(1, turn{})
		}},
		{"a ledger deleted long ago", "where there was none", func(b *bout) {
			b.run(2*capSlots, turn{pardon: []int{0}})
			b.nodes[0].losses = 1
			b.run(1, turn{})
		}},
		{"a loss unnoticed", "not noticed", func(b *bout) {
			b.run(1, turn{losses: []int{wholeLoss}})
			b.nodes[0].losses = 1 // and not node 1
			b.run(300, turn{})
		}},
		{"a loss noticed", "", func(b *bout) {
			b.run(1, turn{losses: []int{wholeLoss}})
			b.nodes[0].losses, b.nodes[1].losses = 1, 1
			b.run(300, turn{})
		}},
		{"a loss noticed in its slot", "", func(b *bout) {
			b.nodes[0].losses, b.nodes[1].losses = 1, 1
			b.run(1, turn{losses: []int{wholeLoss}})
			b.run(300, turn{})
		}},
		{"a loss unnoticed, and one before it", "not noticed", func(b *bout) {
			b.nodes[0].losses, b.nodes[1].losses = 1, 1
			b.run(1, turn{losses: []int{wholeLoss}})
			b.run(300, turn{})
			b.run(1, turn{losses: []int{wholeLoss}})
			b.run(300, turn{})
		}},
		{"a loss that may still be to come", "", func(b *bout) {
			for range 500 { // as long as its fault lasts
				b.run(1, turn{losses: []int{wholeLoss}})
			}
			b.nodes[0].losses, b.nodes[1].losses = 1, 1
			b.run(300, turn{})
		}},
		{"a ledger deleted, and noticed in its slot", "", func(b *bout) {
			b.nodes[0].losses = 1
			b.run(1, turn{pardon: []int{0}})
		}},
		{"a ledger deleted, of a process that was born in its slot", "", func(b *bout) {
			b.run(1, turn{pardon: []int{0}}, happens(0, died, born))
			b.nodes[0].losses = 1
			b.run(1, turn{})
		}},
		{"miscounted", "counts 1 nodes where there are 2", func(b *bout) {
			b.nodes[1].nodes = 1
			b.run(crowdSlots, turn{})
		}},
		{"nodes forgotten", "", func(b *bout) {
			b.nodes[1].nodes = 1
			b.run(crowdSlots-1, turn{crowd: true})
		}},
	} {
		b := newBout(quota(1<<40), 2)
		b.admit(1, 1)
		b.run(crowdSlots+10, turn{})
		c.play(b)
		if c.want == "" && len(b.breaches) > 0 || c.want != "" && !b.broken(c.want) {
			t.Errorf("%s: %q", c.name, b.breaches)
		}
	}
}

// Who refuses everything is found out where more was asked for, and only there.
func TestStarvation(t *testing.T) {
	for _, rule := range hotRules {
		for _, c := range []struct {
			offered, units int32
			want           bool
		}{{8, 0, true}, {8, 1, false}, {0, 0, false}} {
			b := newBout(rule, 2)
			for i := range b.nodes {
				b.nodes[i].items = []asked{{offered: c.offered}}
			}
			for i := range 2000 {
				if c.units > 0 { // about the limit, by both in turn
					rate := float64(rule.Limit()) / rule.Period().Seconds() * slot.Seconds()
					if arith.Of(rule).Units > 0 {
						rate = float64(arith.Of(rule).Units) * slot.Seconds()
					}
					n := int32(rate*float64(i+1)) - int32(rate*float64(i))
					b.nodes[i%2].items = []asked{{offered: c.offered, units: n}}
					b.nodes[1-i%2].items = []asked{{offered: c.offered}}
				}
				b.run(1, turn{})
			}
			if got := b.broken("only"); got != c.want {
				t.Errorf("%v, %+v: starved %v, %.2q", rule, c, got, b.breaches)
			}
		}
	}
}

// Nobody is starved by a limiter that has just admitted all and is not asked
// any more.
func TestNoStarvationAfterTheLoad(t *testing.T) {
	b := newBout(limit.Must(limit.SlidingWindow("w", 200, 4*time.Second)), 1)
	for i := range 2000 {
		b.nodes[0].items = []asked{{offered: 20}}
		if i%200 < 10 { // all of a window at its beginning
			b.nodes[0].items[0].units = 20
		}
		b.run(1, turn{})
	}
	b.admit(0)
	b.run(500, turn{})
	if b.broken("only") {
		t.Errorf("%q", b.breaches)
	}
}

// The bound of one node holds for the real thing under any load, and not for
// one that admits a tenth more.
func TestBoundsCoverTheRules(t *testing.T) {
	for _, rule := range hotRules {
		generous := tenthMore(rule)
		for seed := range uint64(10) {
			if b := playLocal(t, rule, rule, seed); len(b.breaches) > 0 {
				t.Errorf("%v, seed %d: %s", rule, seed, b.breaches[0])
			}
		}
		if b := playLocal(t, rule, generous, 1); len(b.breaches) == 0 {
			t.Errorf("%v: a limiter with a limit of %d went unnoticed, the fullest window was %+v", rule, generous.Limit(), b.worst)
		}
	}
}

// What is remembered of a process does not grow while something is wrong with it, and it tells
// all of that in the end.
func TestReportsOfAnOutage(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(1, 1)
	b.run(100, turn{})
	b.nodes[1].cause = true
	b.run(5000, turn{})
	if n := len(b.procs[1].waiting); n > testAge+1 {
		t.Errorf("%d reports are kept", n)
	}
	if got, want := b.most(&b.keys[0], 0, b.now), 2.0*5100; got != want {
		t.Errorf("at most %v, want %v", got, want)
	}
	b.nodes[1].cause = false
	b.admit(1, 0)
	b.run(3*testAge, turn{})
	b.must(t, "back", 0, 5100+5100+3*testAge)
}
