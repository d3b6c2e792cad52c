package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Redis has booked a batch and its answer is lost, or the batch is lost on its way. It is sent again under its
// number, and counted once: 10, not 20.
//
// Faults 5, 6: booked once although it was sent twice.
func TestBatchLost(t *testing.T) {
	for name, fault := range map[string]func(*network){"reply": func(n *network) { n.cut = 1 }, "request": func(n *network) { n.drop = 1 }} {
		inBubble(t, func(t *testing.T, w *world) {
			n := w.synced(hybrid.Options{})
			wantAdmitted(t, n.Limiter, "k", longTen, 3, 3)
			time.Sleep(time.Second)
			n.net.set(fault)
			wantAdmitted(t, n.Limiter, "k", longTen, 20, 7)
			time.Sleep(time.Second)
			w.wantTotal("k", longTen, 10)
			conserved(t, n.Limiter, true)
			if s := n.Figures(); s.ResentBatches == 0 || s.Failures == 0 {
				t.Errorf("%s: the fault was not injected: %+v", name, s)
			}
		})
	}
}

// Requests and replies lost at random, the whole time, from two nodes with
// many keys in several shards: every total is exact in the end.
//
// Faults 5, 6: totals are exact whatever is lost.
func TestLossesAtRandom(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				rng := rand.New(rand.NewPCG(seed, 1))
				nodes := []*node{w.synced(prompt), w.synced(prompt)}
				want := map[string]int64{}
				for range 400 {
					n := nodes[rng.IntN(2)]
					n.net.set(func(n *network) {
						switch rng.IntN(6) {
						case 0:
							n.cut = 1 + rng.IntN(3)
						case 1:
							n.drop = 1 + rng.IntN(3)
						}
					})
					key := fmt.Sprint("key", rng.IntN(12))
					units := 1 + rng.Int64N(9)
					if n.AllowN(key, longWindow, units) {
						want[key] += units
					}
					time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
				}
				for _, n := range nodes {
					n.net.set(func(n *network) { n.cut, n.drop = 0, 0 })
				}
				time.Sleep(10 * time.Second)
				for key, units := range want {
					w.wantUsed(key, longWindow, units)
				}
				for _, n := range nodes {
					conserved(t, n.Limiter, true)
					if s := n.Figures(); s.ResentBatches < 10 {
						t.Errorf("only %d batches were sent again", s.ResentBatches)
					}
				}
			})
		})
	}
}

// The connection breaks in the middle of a pipeline of many scripts: Redis has
// executed some of them, and which is anybody's guess.
//
// Fault 9: what was applied is not applied again, the rest is sent again.
func TestPipelineTorn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		rng := rand.New(rand.NewPCG(9, 1))
		n := w.synced(hybrid.Options{Shards: 64})
		want := map[string]int64{}
		for range 40 {
			for i := range 40 {
				key := fmt.Sprint("key", i)
				if n.Allow(key, longWindow) {
					want[key]++
				}
			}
			n.net.set(func(n *network) { n.tear = 1 + rng.IntN(6000) })
			flush(t, n.Limiter) // all shards at once, sixteen to a pipeline
		}
		time.Sleep(10 * time.Second)
		wantMode(t, n.Limiter, hybrid.Synced)
		for key, units := range want {
			if got := totalIn(t, w.admin, counterKeyIn(64, longWindow, key)); got != units {
				t.Fatalf("Redis has booked %d units of %q, want %d", got, key, units)
			}
		}
		conserved(t, n.Limiter, true)
		if torn := n.net.traffic().torn; torn < 40 || n.Figures().ResentBatches < uint64(10*torn) {
			t.Errorf("%d pipelines were torn, %d batches sent again: the fault was not injected", torn, n.Figures().ResentBatches)
		}
	})
}

// A batch that a slow Redis answers after its deadline: it is sent again while
// the first copy may still be executed.
//
// Faults 8, 10: answers come after their deadline, in the wrong order.
func TestLateReplies(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		var want int64
		most, goroutines := 0, runtime.NumGoroutine()
		for i := range 200 {
			lag := time.Duration(i%5) * 100 * time.Millisecond
			n.net.set(func(n *network) { n.lag = lag })
			if n.Allow("k", longWindow) {
				want++
			}
			time.Sleep(50 * time.Millisecond)
			most = max(most, runtime.NumGoroutine())
		}
		// Each of at most four pipelines and a heartbeat has some, in go-redis and for its wire.
		if s := n.Figures(); most > goroutines+60 || s.KeysSynced > 100 {
			t.Errorf("%d goroutines at the most, %d before; %d operations", most, goroutines, s.KeysSynced)
		}
		n.net.set(func(n *network) { n.lag = 0 })
		time.Sleep(10 * time.Second)
		wantMode(t, n.Limiter, hybrid.Synced)
		w.wantUsed("k", longWindow, want)
		conserved(t, n.Limiter, true)
	})
}
