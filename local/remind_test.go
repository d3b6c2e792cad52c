//go:build !race

package local

import (
	"fmt"
	"testing"
)

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
