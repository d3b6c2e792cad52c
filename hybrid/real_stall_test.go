package hybrid_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// busyNodes is limiters with default options, clients as recommended, and a load under
// which each exchanges many times a second.
func busyNodes(t *testing.T, srv *redistest.Server, size int) (nodes []*hybrid.Limiter, seen []*changes, halt func()) {
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range size {
		log := new(changes)
		l := newLimiter(t, client(t, hybrid.RedisOptions(srv.Addr())), hybrid.Options{OnStateChange: log.add})
		nodes, seen = append(nodes, l), append(seen, log)
		load.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-tick.C:
					l.Allow("hot", perSecond[0])
					l.Allow(fmt.Sprint("key", i, n%50), longWindow)
				}
			}
		})
	}
	eventually(t, "every node is synced", allModes(nodes, hybrid.Synced))
	return nodes, seen, sync.OnceFunc(func() { close(stop); load.Wait() })
}

// One stall of Redis fails all exchanges that are under way. That is one round: it takes
// two to degrade a node.
//
// Fault 81: 0.15 and 0.3 s degrade nobody, 1 s does.
func TestRealStall(t *testing.T) {
	srv := redistest.Start(t)
	nodes, logs, halt := busyNodes(t, srv, 3)
	defer halt()
	stall := func(d time.Duration) {
		srv.FreezeOrSkip(t)
		<-time.After(d)
		if err := srv.Thaw(); err != nil {
			t.Fatal(err)
		}
		<-time.After(700 * time.Millisecond)
	}
	degraded := func() (n int) {
		for _, c := range logs {
			if slices.Contains(c.modes(), hybrid.Degraded) {
				n++
			}
		}
		return n
	}
	for _, d := range []time.Duration{150 * time.Millisecond, 300 * time.Millisecond} {
		for range limittest.Cases(5, 2) {
			stall(d)
		}
		if n := degraded(); n > 0 {
			t.Errorf("a stall of %v degrades %d nodes", d, n)
		}
	}
	stall(time.Second)
	if n := degraded(); n < len(nodes) {
		t.Errorf("a stall of 1 s degrades %d nodes of %d", n, len(nodes))
	}
	eventually(t, "every node is synced again", allModes(nodes, hybrid.Synced))
}
