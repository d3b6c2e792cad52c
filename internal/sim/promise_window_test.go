package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// offerNodes has nodes, one of them each time, ask for a load, as much as there is.
func (s *sim) offerNodes(rng *rand.Rand, rule *limit.Rule, load []limittest.Ask) *limittest.Log {
	// As long as windows are by any clock that a node may go by.
	log := limittest.NewLog(limittest.Window(rule) - 20*ms)
	for _, a := range load {
		if ask := a.At - s.now - 500*ms; ask > 0 {
			// A node that nobody asks for a key does not hear of it either.
			s.run(time.Duration(ask))
			for _, n := range s.nodes {
				n.take("hot", rule, 0)
			}
		}
		s.run(time.Duration(a.At - s.now))
		n := s.nodes[rng.IntN(len(s.nodes))]
		for range a.N {
			if !n.take("hot", rule, 1).Allowed {
				break
			}
			log.Add(s.now, 1)
		}
	}
	return log
}

// spaced returns a load in which every ask comes at least so much after the one before, so
// that all nodes know of that.
func spaced(load []limittest.Ask, apart int64) []limittest.Ask {
	for i := 1; i < len(load); i++ {
		load[i].At = max(load[i].At, load[i-1].At+apart)
	}
	return load
}

// TestPromiseWindowsOfAnyPattern: no true window holds more than the limit and one bucket's
// share of it, whatever the load, if one node is asked, or several that have had the time
// to hear of each other.
//
// Fault 85: at most limit + limit/buckets in any window of a fleet, for any pattern.
func TestPromiseWindowsOfAnyPattern(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, buckets := range []int{1, 2, 10, 60} {
			for seed := range uint64(6) {
				rng := rand.New(rand.NewPCG(seed, uint64(buckets)))
				rule := limit.Must(limit.SlidingWindowBuckets("window", []int64{1, 7, 30, 100}[rng.IntN(4)], 30*time.Second, buckets))
				s := newSim(t, seed, nodes, rule)
				s.run(2 * time.Second)
				load := spaced(limittest.Adverse(rng, rule, s.now, 40), int64(time.Second))
				if log := s.offerNodes(rng, rule, load); log.Most > limittest.Bound(rule) {
					t.Errorf("%d nodes, %v in %d buckets, seed %d: %d units in one window, at most %d are promised",
						nodes, rule, buckets, seed, log.Most, limittest.Bound(rule))
				}
			}
		}
	}
}

// TestPromiseWindowsAdmitBursts: who takes the whole limit about once per window, from any
// node, gets nearly all that an exact log would admit.
func TestPromiseWindowsAdmitBursts(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, apart := range []float64{1.001, 1.01, 1.05, 1.1} {
			rng := rand.New(rand.NewPCG(uint64(nodes), 85))
			rule := limit.Must(limit.SlidingWindow("window", 50, 30*time.Second))
			s := newSim(t, 1, nodes, rule)
			s.run(2 * time.Second)
			const bursts = 30
			log := s.offerNodes(rng, rule, limittest.Bursts(rule, s.now, apart, bursts))
			if log.Total*100 < bursts*rule.Limit()*97 {
				t.Errorf("%d nodes, bursts every %v windows: %d units admitted of %d", nodes, apart, log.Total, bursts*rule.Limit())
			}
		}
	}
}

// TestPromiseWindowsStartWithoutRedis: what was counted by a guess of Redis' clock keeps
// its age when that is known.
func TestPromiseWindowsStartWithoutRedis(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 87))
		rule := limit.Must(limit.SlidingWindow("window", 100, 10*time.Second))
		s := newSim(t, seed, 1, rule)
		s.down = true
		s.nodes[0].skew = rng.Int64N(int64(time.Hour))
		load := spaced(limittest.Adverse(rng, rule, s.now+int64(5*time.Second), 12), int64(time.Second)/10)
		back := rng.IntN(len(load))
		log := s.offerNodes(rng, rule, load[:back])
		s.down = false
		s.run(3 * time.Second)
		more := limittest.NewLog(limittest.Window(rule) - 20*ms)
		*more = *log
		for _, a := range load[back:] {
			s.run(time.Duration(max(a.At-s.now, 0)))
			for range a.N {
				if !s.nodes[0].take("hot", rule, 1).Allowed {
					break
				}
				more.Add(s.now, 1)
			}
		}
		if more.Most > limittest.Bound(rule) {
			t.Errorf("seed %d: %d units in one window, at most %d are promised", seed, more.Most, limittest.Bound(rule))
		}
	}
}
