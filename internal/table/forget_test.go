//go:build !race

package table

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Not under the race detector, which makes the rounds ten times as long.

// A counter is not dropped together with a unit that its lease admits meanwhile. Of three units two are
// taken. Then all that is left is asked for while the counter is dropped: whether it is or not, and
// whether before the third unit or after it, one more is admitted.
func TestForgottenWithoutAnAdmittedUnit(t *testing.T) {
	table := newTable(t, Options{})
	rule := limit.Must(limit.Funnel("three", 3, 1, time.Minute))
	now := start.UnixNano()
	var round, asked atomic.Int64
	var admitted [3]atomic.Int64
	key := func(i int64) string { return fmt.Sprint("key ", i%8, " ", i) }
	const rounds = 40_000
	go func() {
		for i := int64(1); i <= rounds; i++ {
			k := key(i)
			for spins := 1; round.Load() != i; spins++ { // both begin at once
				if spins%1000 == 0 {
					runtime.Gosched() // there may be one processor
				}
			}
			n := int64(0)
			for range 4 {
				if ok, _ := table.Allow(k, rule, 1, now); ok {
					n++
				}
			}
			admitted[i%3].Store(n)
			asked.Store(i)
		}
	}()
	forgotten := 0
	for i := int64(1); i <= rounds; i++ {
		h, print := table.hashOf(key(i), rule)
		table.Allow(key(i), rule, 1, now)
		table.Allow(key(i), rule, 1, now) // the second check of a key gets a lease
		sh := table.index.shard(h)
		sh.mu.Lock()
		c := sh.findLocked(h, print, key(i), rule)
		round.Store(i)
		for range i % 2048 { // the lease admits at the beginning, in the middle or at the end
			round.Load()
		}
		_, gone := table.forgetLocked(sh, c, counter.Used, now)
		sh.mu.Unlock()
		until(t, "the others", func() bool { return asked.Load() == i })
		if gone {
			forgotten++
		}
		if got := admitted[i%3].Load(); got != 1 {
			t.Fatalf("round %d: forgotten: %v, and %d more units admitted", i, gone, got)
		}
	}
	t.Logf("forgotten in %d of %d rounds", forgotten, rounds)
}
