package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// bout feeds a fleet by hand. Each node is asked for and admits so many units a slot.
type bout struct {
	*fleet
	nodes    []player
	breaches []string
}

type player struct {
	lap
	cause, sealed bool
}

const testAge = 10 // R, in slots

// newBout returns a bout of so many nodes that are born in the first slot.
func newBout(rule *limit.Rule, nodes int) *bout {
	b := &bout{}
	b.fleet = newFleet([]*limit.Rule{rule}, nodes, func(format string, args ...any) {
		b.breaches = append(b.breaches, fmt.Sprintf(format, args...))
	})
	first := turn{}
	for place := range nodes {
		b.nodes = append(b.nodes, player{lap: lap{said: said{mode: hybrid.Synced, nodes: nodes}}})
		first.facts = append(first.facts, fact{place: place, age: testAge, laps: []lap{{kind: born}}})
	}
	b.admit(make([]int32, nodes)...)
	b.step(first)
	return b
}

// admit sets what each node is asked for, and admits, from now on in each slot.
func (b *bout) admit(units ...int32) {
	for i, u := range units {
		b.nodes[i].items = []asked{{offered: u, units: u}}
	}
}

// run plays so many slots, in the first of which something happens: ends are the
// processes that end before they are asked any more, and begin those that begin then.
func (b *bout) run(n int, t turn, change ...fact) {
	for i := range n {
		t.facts = nil
		for place, p := range b.nodes {
			x := fact{place: place, cause: p.cause, sealed: p.sealed, age: testAge}
			if i == 0 {
				for _, c := range change {
					if c.place == place {
						x.laps = append(x.laps, c.laps...)
					}
				}
			}
			if alive := b.procs[place].alive; len(x.laps) > 0 && x.laps[len(x.laps)-1].kind == born || alive && len(x.laps) == 0 {
				x.laps = append(x.laps, p.lap)
			}
			t.facts = append(t.facts, x)
		}
		b.step(t)
		t = turn{}
	}
}

// happens returns what has a place's process end, or begin.
func happens(place int, kinds ...kind) fact {
	x := fact{place: place}
	for _, k := range kinds {
		x.laps = append(x.laps, lap{kind: k})
	}
	return x
}

// broken tells whether one of the breaches says so.
func (b *bout) broken(what string) bool {
	return slices.ContainsFunc(b.breaches, func(s string) bool { return strings.Contains(s, what) })
}

func quota(units int64) *limit.Rule { return limit.Must(limit.SlidingWindow("quota", units, year)) }

// must checks what a node must count now.
func (b *bout) must(t *testing.T, when string, place int, want float64) {
	t.Helper()
	if got, _ := b.known(0, place); got != want {
		t.Errorf("%s: node %d must count %v, want %v", when, place, got, want)
	}
}

// tenthMore returns the same rule with a limit too high. For what may be
// misjudged at the borders of short windows a few units more are allowed.
func tenthMore(r *limit.Rule) *limit.Rule {
	more := r.Limit() + r.Limit()/5
	if arith.Of(r).Algorithm == arith.SlidingWindow && arith.Of(r).Buckets == 1 {
		more += arith.Of(r).Share // as much more may be in a window
	}
	switch arith.Of(r).Algorithm {
	case arith.TokenBucket:
		return limit.Must(limit.TokenBucket(r.Name(), arith.Of(r).Units, r.Period(), more))
	case arith.FixedWindow:
		return limit.Must(limit.FixedWindow(r.Name(), more, r.Period()))
	}
	return limit.Must(limit.SlidingWindowBuckets(r.Name(), more, r.Period(), arith.Of(r).Buckets))
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
	b.epoch = start.UnixNano() - int64(slot) - int64(slot)/2
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		b.admit(0)
		for range rng.IntN(2) * rng.IntN(2) * rng.IntN(100) {
			b.nodes[0].items[0].offered++
			if lim.Allow("k", decided) {
				b.nodes[0].items[0].units++
			}
		}
		b.run(1, turn{})
		clk.Advance(slot)
	}
	return b
}
