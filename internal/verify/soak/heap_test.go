package main

import (
	"runtime"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// What is judged is what a limiter could leak, and not what piles up when the machine is busy.
func TestHeap(t *testing.T) {
	proxy, err := redistest.NewProxy("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	r := &run{traffic: newTraffic(1)}
	r.judge = newGatherer(r)
	n := &node{run: r, proxy: proxy, rdb: rig.NewClient(proxy.Addr())}
	defer n.rdb.Close()
	r.nodes = []*node{n}
	for _, c := range []struct {
		name       string
		make       func() any
		least, max int64
	}{
		{"a leak", func() any { return make([]byte, 8*mib) }, 7 * mib, 9 * mib},
		{"laps that are not judged yet", func() any { // some 9 MiB
			for range 20_000 {
				n.laps = append(n.laps, lap{items: make([]asked, len(r.traffic.items))})
			}
			return nil
		}, -mib, mib},
	} {
		before := r.heap()
		kept := c.make()
		if d := r.heap() - before; d < c.least || d > c.max {
			t.Errorf("%s: the heap grows by %d KiB, want %d to %d", c.name, d>>10, c.least>>10, c.max>>10)
		}
		runtime.KeepAlive(kept)
	}
}

// What is remembered of a process does not grow while something is wrong with it, and it tells
// all of that in the end.
func TestReportsOfAnOutage(t *testing.T) {
	b := newBout(quota(1<<40), 2)
	b.admit(1, 1)
	b.run(100, turn{})
	b.nodes[1].cause = true
	b.run(5000, turn{})
	if n := len(b.procs[1].waiting); n > testAge+1 {
		t.Errorf("%d reports are kept", n)
	}
	if got, want := b.most(&b.keys[0], 0, b.now), 2.0*5100; got != want {
		t.Errorf("at most %v, want %v", got, want)
	}
	b.nodes[1].cause = false
	b.admit(1, 0)
	b.run(3*testAge, turn{})
	b.must(t, "back", 0, 5100+5100+3*testAge)
}
