//go:build !race

package hybrid_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Not under the race detector: it takes the processor that the exchanges need.

// New keys come in floods, and are asked for. What is near its limit goes first.
//
// Fault 84: hot keys stay within 1.1 of their limits, and nobody is degraded.
func TestRealFloodOfNewKeys(t *testing.T) {
	srv := redistest.Start(t)
	hot := limit.Must(limit.FixedWindow("hot", 50, time.Hour))
	const newKeys, d = 20_000, 3 * time.Second // a second, of all nodes
	var load sync.WaitGroup
	var all []*changes
	units := make([]int64, 3)
	for i := range units {
		seen := new(changes)
		l := newLimiter(t, client(t, hybrid.RedisOptions(srv.Addr())), hybrid.Options{OnStateChange: seen.add})
		all = append(all, seen)
		eventually(t, 10*time.Second, "synced with all", func() bool { return l.State().Nodes == i+1 })
		load.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			asked, hotAsked := 0, 0
			for begun := time.Now(); time.Since(begun) < d; <-tick.C {
				for due := int(time.Since(begun) / (time.Second / newKeys * 3)); asked < due && time.Since(begun) < d; asked++ {
					l.Allow(fmt.Sprint("new", i, asked), longWindow)
					for ; hotAsked < int((time.Since(begun)-d/3)/(20*time.Millisecond)); hotAsked++ {
						if l.Allow("hot", hot) {
							units[i]++
						}
					}
				}
			}
		})
	}
	load.Wait()
	sum := int64(0)
	for i, n := range units {
		sum += n
		if slices.Contains(all[i].modes(), hybrid.Degraded) {
			t.Errorf("node %d was degraded", i)
		}
	}
	if sum > 55 || sum < 48 {
		t.Errorf("%d units of the hot key admitted, its limit is 50", sum)
	}
}
