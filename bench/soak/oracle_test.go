package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// bout feeds an oracle by hand. Each place has one process, in column 2·place,
// which is asked for and admits so many units a slot.
type bout struct {
	*oracle
	facts    []fact
	breaches []string
}

const testAge = 10 // R, in slots

// newBout returns a bout of so many nodes that are born in the first slot.
func newBout(rule *limit.Rule, nodes int) *bout {
	b := &bout{}
	b.oracle = newOracle([]*limit.Rule{rule}, nodes, func(format string, args ...any) {
		b.breaches = append(b.breaches, fmt.Sprintf(format, args...))
	})
	first := turn{}
	for place := range nodes {
		first.born = append(first.born, 2*place)
		b.facts = append(b.facts, fact{col: 2 * place, mode: hybrid.Synced, nodes: nodes, age: testAge, offered: []int32{0}, units: []int32{0}})
	}
	b.step(first)
	return b
}

// admit sets what each node admits from now on in each slot.
func (b *bout) admit(units ...int32) {
	for i, u := range units {
		b.facts[i].units, b.facts[i].offered = []int32{u}, []int32{u}
	}
}

// run plays so many slots, in the first of which something happens.
func (b *bout) run(n int, t turn) {
	for range n {
		t.facts = nil
		for _, f := range b.facts {
			if b.cols[f.col].alive || slices.Contains(t.born, f.col) {
				t.facts = append(t.facts, f)
			}
		}
		b.step(t)
		t = turn{}
	}
}

// broken tells whether one of the breaches says so.
func (b *bout) broken(what string) bool {
	return slices.ContainsFunc(b.breaches, func(s string) bool { return strings.Contains(s, what) })
}

func quota(units int64) *limit.Rule { return limit.Must(limit.SlidingWindow("quota", units, year)) }

// must checks what a column must count now.
func (b *bout) must(t *testing.T, when string, col int, want float64) {
	t.Helper()
	if got, _ := b.view(0, col); got != want {
		t.Errorf("%s: column %d must count %v, want %v", when, col, got, want)
	}
}

// When nothing is wrong a node must know what the others had admitted 2·R ago:
// R until it is booked, R until it is seen.
func TestHorizonWhenNothingIsWrong(t *testing.T) {
	b := newBout(quota(1<<40), 3)
	b.admit(1, 2, 3)
	b.run(200, turn{})
	b.must(t, "calm", 0, 200+5*(200-2*testAge))
	b.must(t, "calm", 4, 600+3*(200-2*testAge))
	b.admit(0, 2, 3) // node 0 only refuses: its view is of when it admitted last
	b.facts[0].offered = []int32{1}
	b.run(refreshSlots+testAge+50, turn{}) // and is then refreshed, but later
	b.must(t, "refusing", 0, 200+5*(200+50-testAge))
	if len(b.breaches) > 0 {
		t.Errorf("%q", b.breaches)
	}
}

// A quota is broken in the very slot in which somebody admits what he must know
// is not there.
func TestOracleFindsExcess(t *testing.T) {
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

func TestFindingTops(t *testing.T) {
	none := finding{}
	for _, c := range []struct {
		f, g finding
		want bool
	}{
		{finding{admitted: 1, bound: 100, limit: 100}, none, true},
		{none, finding{admitted: 1, bound: 100, limit: 100}, false},
		{finding{admitted: 90, bound: 100, limit: 100}, finding{admitted: 170, bound: 200, limit: 100}, true},
		{finding{admitted: 170, bound: 200, limit: 100}, finding{admitted: 90, bound: 100, limit: 100}, false},
		{finding{admitted: 130, bound: 130, limit: 100}, finding{admitted: 400, bound: 400, limit: 400}, true},
		{finding{admitted: 400, bound: 400, limit: 400}, finding{admitted: 130, bound: 130, limit: 100}, false},
	} {
		if got := c.f.tops(c.g); got != c.want {
			t.Errorf("%+v tops %+v: %v", c.f, c.g, got)
		}
	}
}

// During an outage of one node the others need not know more of it than
// before, and it no more of them; afterwards they must.
func TestHorizonInAnOutage(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(1, 1)
	b.run(100, turn{})
	b.facts[1].cause = true
	b.run(50, turn{})
	b.must(t, "node 1 away", 0, 150+100-testAge)
	b.must(t, "node 1 away", 2, 150+100-2*testAge)
	b.facts[1].cause = false
	b.run(testAge, turn{})
	b.must(t, "node 1 just back", 0, 160+100-testAge)
	b.run(2*testAge, turn{})
	b.must(t, "node 1 back", 0, 180+180-2*testAge)
	b.must(t, "node 1 back", 2, 180+180-2*testAge)
}

// A node that has no way to Redis for long counts its units several times, and
// only then.
func TestNodeOnItsOwn(t *testing.T) {
	b := newBout(quota(1<<40), 4)
	b.admit(1, 0, 0, 0)
	b.run(100, turn{})
	b.facts[0].cause, b.facts[0].complete = true, true
	b.run(noticeSlots+1, turn{})
	b.must(t, "not noticed", 0, float64(100+noticeSlots+1))
	b.run(20, turn{})
	b.must(t, "alone", 0, float64(100+noticeSlots+1+4*20))
	b.facts[0].complete = false
	b.run(1, turn{})
	b.must(t, "not quite alone", 0, float64(100+noticeSlots+22))
}

// What a process had not reported when it crashed is lost; one that ends in
// order has reported all.
func TestCrash(t *testing.T) {
	for _, orderly := range []bool{false, true} {
		b := newBout(quota(1<<40), 2)
		b.admit(1, 1)
		b.run(100, turn{})
		end, want := turn{crashed: []int{2}}, 200-testAge
		if orderly {
			end, want = turn{left: []int{2}}, 200
		}
		b.run(1, end)
		b.run(50, turn{})
		b.must(t, fmt.Sprint("orderly: ", orderly), 0, float64(want+51+1))
		least, most := b.between(0, 0, forAll)
		if least != float64(want+51+1) || most != 252 {
			t.Errorf("orderly %v: Redis must count %v to %v", orderly, least, most)
		}
	}
}

// A new process knows nothing until it has been answered, and nothing of the
// last one by itself.
func TestNewProcess(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(1, 1)
	b.run(100, turn{})
	b.run(1, turn{crashed: []int{2}})
	b.facts[1].col = 3
	b.run(1, turn{born: []int{3}})
	b.run(testAge, turn{})
	b.must(t, "new", 3, 1+testAge)
	b.run(20, turn{})
	b.must(t, "answered", 3, 31+(132-2*testAge)+(101-testAge))
}

// After a loss what was not known to others may be gone, and what is admitted
// until all is told anew; then all is as before.
func TestLoss(t *testing.T) {
	for _, key := range []int{wholeLoss, 0} {
		b := newBout(quota(1<<40), 2)
		b.admit(1, 1)
		b.run(100, turn{})
		b.run(1, turn{losses: []int{key}})
		b.facts[0].losses, b.facts[1].losses = 1, 1
		settle := beatSlots + refreshSlots + 3*testAge
		b.run(settle-1, turn{})
		b.must(t, "before it is mended", 0, float64(101+settle-1)+100-2*testAge)
		b.run(100, turn{})
		if b.holes[0].open {
			t.Fatal("never mended")
		}
		// Node 0 is taken to know best: its own are restored, and of the other
		// what it must have known.
		end := b.holes[0].end
		s := 101 + settle - 1 + 100 + 1 // and the first slot
		fresh := float64(s - 2*testAge - end)
		b.must(t, "mended", 0, float64(s-1)+100-2*testAge+fresh)
		b.must(t, "mended", 2, float64(s-1)+100+fresh)
		if key == wholeLoss && len(b.breaches) > 0 {
			t.Errorf("%q", b.breaches)
		}
	}
}

// A hole is not mended while a node is away that could still raise what it
// knows, nor while one has not been asked for a lost key.
func TestLossIsOpenUntilAllAreBack(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(1, 1)
	b.run(100, turn{})
	b.facts[1].cause = true
	b.run(500, turn{losses: []int{wholeLoss}})
	if !b.holes[0].open {
		t.Error("mended while a node is away")
	}
	b = newBout(quota(1<<40), 2)
	b.admit(1, 0)
	b.run(100, turn{})
	b.run(500, turn{losses: []int{0}})
	if !b.holes[0].open {
		t.Error("mended while a node does not ask")
	}
	b.admit(1, 1)
	b.run(100, turn{})
	if b.holes[0].open {
		t.Error("not mended")
	}
}

// A process that begins while Redis is being told what it has lost may have
// been told too little. Later it must know all.
func TestNewProcessAfterALoss(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(1, 1)
	b.run(100, turn{})
	b.run(1, turn{crashed: []int{2}})
	b.facts[1].col = 3
	b.run(1, turn{losses: []int{wholeLoss}, born: []int{3}})
	b.run(3*testAge, turn{})
	b.must(t, "too early", 3, 1+3*testAge)
	b.facts[0].losses = 1
	b.run(300, turn{})
	if got, _ := b.view(0, 3); got < 331+101 {
		t.Errorf("long after: the new process must count %v", got)
	}
}

func TestOracleLooksAtStates(t *testing.T) {
	for _, c := range []struct {
		name, want string
		play       func(b *bout)
	}{
		{"late", "still resyncing", func(b *bout) {
			b.facts[0].cause = true
			b.run(10, turn{})
			b.facts[0].cause, b.facts[0].mode = false, hybrid.Resyncing
			b.run(capSlots+2, turn{})
		}},
		{"not late", "", func(b *bout) {
			b.facts[0].cause = true
			b.run(10, turn{})
			b.facts[0].cause, b.facts[0].mode = false, hybrid.Resyncing
			b.run(capSlots, turn{})
		}},
		{"no cause", "degraded although", func(b *bout) {
			b.facts[0].mode = hybrid.Degraded
			b.run(1, turn{})
		}},
		{"a loss that is none", "where there was none", func(b *bout) {
			b.facts[0].losses = 1
			b.run(1, turn{})
		}},
		{"a ledger deleted", "", func(b *bout) {
			b.run(10, turn{pardon: []int{0}})
			b.facts[0].losses = 1
			b.run(1, turn{})
		}},
		{"a loss unnoticed", "not noticed", func(b *bout) {
			b.run(1, turn{losses: []int{wholeLoss}})
			b.facts[0].losses = 1 // and not node 1
			b.run(300, turn{})
		}},
		{"a loss noticed", "", func(b *bout) {
			b.run(1, turn{losses: []int{wholeLoss}})
			b.facts[0].losses, b.facts[1].losses = 1, 1
			b.run(300, turn{})
		}},
		{"miscounted", "counts 1 nodes where there are 2", func(b *bout) {
			b.facts[1].nodes = 1
			b.run(crowdSlots, turn{})
		}},
		{"nodes forgotten", "", func(b *bout) {
			b.facts[1].nodes = 1
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
func TestOracleFindsStarvation(t *testing.T) {
	for _, rule := range hotRules {
		for _, c := range []struct {
			offered, units int32
			want           bool
		}{{8, 0, true}, {8, 1, false}, {0, 0, false}} {
			b := newBout(rule, 2)
			for i := range b.facts {
				b.facts[i].offered, b.facts[i].units = []int32{c.offered}, []int32{0}
			}
			for i := range 2000 {
				if c.units > 0 { // about the limit, by both in turn
					rate := float64(rule.Limit()) / rule.Period().Seconds() * slot.Seconds()
					if rule.Units() > 0 {
						rate = float64(rule.Units()) * slot.Seconds()
					}
					n := int32(rate*float64(i+1)) - int32(rate*float64(i))
					b.facts[i%2].units, b.facts[1-i%2].units = []int32{n}, []int32{0}
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
		b.facts[0].offered, b.facts[0].units = []int32{20}, []int32{0}
		if i%200 < 10 { // all of a window at its beginning
			b.facts[0].units[0] = 20
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

// tenthMore returns the same rule with a limit too high. For what may be
// misjudged at the borders of short windows a few units more are allowed.
func tenthMore(r *limit.Rule) *limit.Rule {
	more := r.Limit() + r.Limit()/5
	switch r.Algorithm() {
	case limit.AlgorithmFunnel:
		return limit.Must(limit.Funnel(r.Name(), more, r.Units(), r.Period()))
	case limit.AlgorithmFixedWindow:
		return limit.Must(limit.FixedWindow(r.Name(), more, r.Period()))
	}
	return limit.Must(limit.SlidingWindowBuckets(r.Name(), more, r.Period(), r.Buckets()))
}

// playLocal has a limiter without Redis decide by one rule, and the oracle
// judge by another.
func playLocal(t *testing.T, judged, decided *limit.Rule, seed uint64) *bout {
	t.Helper()
	start := time.Unix(1_700_000_000, int64(seed)*7_000_000)
	clk := clock.NewManual(start)
	lim, err := local.New(local.Options{Clock: clk})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	b := newBout(judged, 1)
	// The clock shows the middle of slot 2 at first.
	b.epoch = start.UnixNano() - int64(2*slot) - int64(slot)/2
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		b.admit(0)
		for range rng.IntN(2) * rng.IntN(2) * rng.IntN(100) {
			b.facts[0].offered[0]++
			if lim.Allow("k", decided) {
				b.facts[0].units[0]++
			}
		}
		b.run(1, turn{})
		clk.Advance(slot)
	}
	return b
}

// What Redis counts is compared with what it must and may count: not more than
// was admitted, nor in a newer window, and what it must have been told.
func TestVerify(t *testing.T) {
	window := limit.Must(limit.SlidingWindow("w", 1<<40, 4*time.Second))
	for i, c := range []struct {
		name  string
		rule  *limit.Rule
		c     count
		final bool
		hole  bool // open, or closed just now
		want  string
	}{
		{"all", quota(1 << 40), count{units: 1000}, true, false, ""},
		{"not yet told", quota(1 << 40), count{units: 5 * (200 - testAge - 2)}, false, false, ""},
		{"too little", quota(1 << 40), count{units: 5*(200-testAge-2) - 1}, false, false, "must have been told of 940"},
		{"too little at the end", quota(1 << 40), count{units: 999}, true, false, "told of 1000"},
		{"too much", quota(1 << 40), count{units: 1001}, false, false, "only 1000"},
		{"not certain when", quota(1 << 40), count{units: 1001, skipped: 1}, false, false, ""},
		{"lost", quota(1 << 40), count{units: 5}, false, true, ""},
		{"lost just now", quota(1 << 40), count{units: 5}, false, true, ""},
		{"lost, and too much", quota(1 << 40), count{units: 1001}, false, true, "only 1000"},
		{"broken", quota(1 << 40), count{err: errors.New("oh")}, false, false, "oh"},
		{"poisoned", quota(1 << 40), count{err: errors.New("oh")}, false, true, ""},
		{"window", window, count{units: 500, since: int64(101 * slot)}, true, false, ""},
		{"window, too little", window, count{units: float64(5 * (100 - marginSlots - 1)), since: int64(101 * slot)}, true, false, "told of"},
		{"window, too much", window, count{units: float64(5 * (100 + marginSlots + 1)), since: int64(101 * slot)}, true, false, "only"},
	} {
		b := newBout(c.rule, 2)
		b.admit(2, 3)
		b.run(200, turn{})
		if c.hole {
			b.holes[0] = []hole{{open: true}, {end: 200}}[i%2]
		}
		b.verify(reading{from: 200, to: 200, final: c.final, counts: []count{c.c}})
		if c.want == "" && len(b.breaches) > 0 || c.want != "" && !b.broken(c.want) {
			t.Errorf("%s: %q", c.name, b.breaches)
		}
	}
}

// The oracle's memory is bounded, and what it has forgotten excuses nobody.
func TestOracleRemembersTotals(t *testing.T) {
	b := newBout(quota(1<<40), 1)
	b.admit(1)
	b.run(3*ring, turn{})
	b.must(t, "long after", 0, 3*ring)
	b.run(1, turn{left: []int{0}})
	b.run(ring, turn{})
	b.run(1, turn{born: []int{0}})
	b.run(100, turn{})
	b.must(t, "the next process in the same column", 0, 3*ring+1+101)
}
