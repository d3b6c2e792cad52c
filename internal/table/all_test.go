package table

import (
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Newcomers without room share counters that have no order among themselves.
func TestTakeAllCrowded(t *testing.T) {
	shards := func(key string, _ *limit.Rule) uint64 { // two, by the last letter
		return uint64(key[len(key)-1]%2)<<63 | 1<<40
	}
	table := newTable(t, Options{MaxKeys: 1, slack: 600, hash: shards})
	r := limit.Must(limit.FixedWindow("r", 1<<40, time.Hour))
	full := limit.Must(limit.FixedWindow("full", 1, time.Hour))
	for _, k := range names("denied", 700) {
		table.takeAt(k, full, 1, start.UnixNano())
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			checks := []limit.Check{askFor("new 1", r, 1), askFor("new 2", r, 1)}
			if g%2 == 1 {
				checks[0], checks[1] = checks[1], checks[0]
			}
			for range 20000 {
				table.TakeAll(checks, start.UnixNano(), make([]limit.Result, 2))
			}
		})
	}
	all.Wait()
	if table.Stats().Overflow == 0 {
		t.Error("nobody was without room: the test tests nothing")
	}
}

func askFor(key string, r *limit.Rule, n int64) limit.Check {
	return limit.Check{Key: key, Rule: r, N: n}
}
