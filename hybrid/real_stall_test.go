package hybrid_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote/redistest"
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
	eventually(t, 10*time.Second, "every node is synced", allModes(nodes, hybrid.Synced))
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
		for range 5 {
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
	eventually(t, 10*time.Second, "every node is synced again", allModes(nodes, hybrid.Synced))
}

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
			asked, ticks := 0, 0
			for begun := time.Now(); time.Since(begun) < d; <-tick.C {
				for due := int(time.Since(begun) / (time.Second / newKeys * 3)); asked < due; asked++ {
					l.Allow(fmt.Sprint("new", i, asked), longWindow)
				}
				if ticks++; ticks%10 == 0 && time.Since(begun) > d/3 && l.Allow("hot", hot) {
					units[i]++
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
