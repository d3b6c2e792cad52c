package hybrid_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// hotKey asks each node for a key, all together about so many times a second, until the fleet has admitted
// nothing for a second. It returns how many units were admitted.
func hotKey(nodes []*hybrid.Limiter, key string, rule *limit.Rule, perSecond int) int64 {
	pause := time.Second * time.Duration(len(nodes)) / time.Duration(perSecond)
	var sum, latest atomic.Int64
	begun := time.Now()
	var wg sync.WaitGroup
	for i, l := range nodes {
		wg.Go(func() {
			<-time.After(pause * time.Duration(i) / time.Duration(len(nodes)))
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for ; time.Since(begun)-time.Duration(latest.Load()) < time.Second+pause; <-tick.C {
				if l.Allow(key, rule) {
					sum.Add(1)
					latest.Store(int64(time.Since(begun)))
				}
			}
		})
	}
	wg.Wait()
	return sum.Load()
}

// A fleet that starts admits of its first hot key what a fleet that runs does, without an option.
//
// Fault 109: a fleet starts in the same second on a key that is asked at once.
func TestRealFleetStarts(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rule := limit.Must(limit.FixedWindow("w", 50, time.Hour))
	for _, size := range []int{4, 10, 30} {
		var nodes []*hybrid.Limiter
		for range size {
			nodes = append(nodes, newLimiter(t, dial(t, srv.Addr()), hybrid.Options{}))
		}
		got := hotKey(nodes, fmt.Sprint("first of ", size), rule, 200)
		t.Logf("%d nodes: %d of %d", size, got, rule.Limit())
		// 53, and what is asked in 50 ms: the first answers may take that long on a busy machine.
		if got > 53+200/20 {
			t.Errorf("%d nodes that start admit %d of %d", size, got, rule.Limit())
		}
		for _, l := range nodes {
			if err := l.Shutdown(bg); err != nil {
				t.Fatal(err)
			}
		}
	}
}
