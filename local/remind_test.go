//go:build !race

package local

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
)

// Busy keys are limited although there is a key that nobody asks for again for
// each of their checks, and the cache has no room for those.
func TestBusyKeysInAFlood(t *testing.T) {
	const busy, most, checks = 50, 1000, 3000
	clk := clock.NewManual(start)
	l := newLimiter(t, Options{MaxKeys: 20 * busy, Clock: clk})
	rule := slow(most)
	keys := make([]*Key, busy)
	for i, k := range names("busy", busy) {
		keys[i] = l.Key(k, rule)
	}
	admitted := make([]int, busy)
	for round := range checks {
		for i, k := range keys {
			if k.Allow() {
				admitted[i]++
			}
			l.Allow(fmt.Sprint("junk ", round, i), rule)
		}
		clk.Advance(time.Millisecond)
		if round%20 == 0 {
			settle(t, l.table) // as fast as this nobody comes
		}
	}
	free := 0
	for _, n := range admitted {
		if n > most*11/10 {
			free++
		}
	}
	if free > busy/10 {
		t.Errorf("%d of %d keys were admitted more than their limit: %v", free, busy, admitted)
	}
	check(t, l.table)
}

// A key that is asked all the time stays in the cache while others come and go,
// although most of its checks never get there. Not under the race detector: it makes the
// cache lose most of what it is told.
func TestPopularKeysAreReminded(t *testing.T) {
	const popular = 200
	rule := slow(1 << 40)
	table := newTable(t, TableOptions{MaxKeys: 4 * popular})
	keys := names("popular", popular)
	for round := range 3000 {
		for _, k := range keys {
			admit(table, k, rule, 1, 1)
		}
		flood(table, rule, fmt.Sprint("junk", round), 4)
	}
	settle(t, table)
	held := 0
	for _, k := range keys {
		if c := table.view.Load().get(table.hashOf(k, rule)); c != nil && c.matches(k, rule) {
			held++
		}
	}
	if held < popular*9/10 {
		t.Errorf("the cache holds %d of %d popular keys", held, popular)
	}
	check(t, table)
}
