package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TestPromiseWindowsWhileExchangesAreSlow: one node alone keeps the bound in any true window while
// it learns Redis' clock from exchanges of which each way takes up to 120 ms, and later ones are
// quick. Before that it may have counted by its own clock.
//
// Fault 96: at most limit + limit/buckets on a key that one node alone asks, whatever exchanges
// it learns Redis' clock from.
func TestPromiseWindowsWhileExchangesAreSlow(t *testing.T) {
	for _, window := range []time.Duration{time.Second, 10 * time.Second} {
		for seed := range uint64(100) {
			rng := rand.New(rand.NewPCG(seed, 96))
			rule := limit.Must(limit.SlidingWindow("lone", 100, window))
			s := newSim(t, seed, 1, rule)
			s.nodes[0].skew = rng.Int64N(2*int64(time.Hour)) - int64(time.Hour)
			s.delay, s.delayMax = 0.9, 120*ms // 0.25 s is the time-out
			log := limittest.NewLog(limittest.Window(rule))
			for step := range 6000 {
				if step == 1000 {
					s.delay = 0
				}
				s.run(time.Duration(rng.Int64N(4 * ms)))
				if s.nodes[0].take("lone", rule, 1).Allowed {
					log.Add(s.now, 1)
				}
			}
			if log.Most > limittest.Bound(rule) {
				t.Errorf("seed %d, window %v: %d units in one window, at most %d are promised", seed, window, log.Most, limittest.Bound(rule))
			}
		}
	}
}
