package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// overload offers perNode requests a second to every node for a while and
// returns when a unit was admitted.
func (s *sim) overload(d time.Duration, rule *limit.Rule, perNode int) (list []int64) {
	step := time.Second / time.Duration(perNode)
	for end := s.now + int64(d); s.now < end; {
		for _, n := range s.nodes {
			if n.take("hot", rule, 1).Allowed {
				list = append(list, s.now)
			}
		}
		s.run(step)
	}
	return list
}

// TestPromiseConnected: three nodes at 3-fold overload keep within the bound
// that the README states in every window, and use the limit.
func TestPromiseConnected(t *testing.T) {
	const lim, window = 1000, 10 * time.Second
	for _, rule := range []*limit.Rule{
		limit.Must(limit.SlidingWindow("sliding", lim, window)),
		limit.Must(limit.TokenBucket("funnel", lim, window, lim)),
	} {
		for seed := range uint64(4) {
			s := newSim(t, seed, 3, rule)
			s.run(2 * time.Second)
			from := s.now
			list := s.overload(40*time.Second, rule, lim/10)
			// Σ over the other nodes of min(L, 2·r·(S+δ)): r = 100/s, S+δ about 0.1 s.
			bound := int64(lim + 2*2*100*102/1000)
			if arith.Of(rule).Algorithm == arith.TokenBucket {
				bound += lim // a leaky bucket admits its capacity on top of what leaks
			}
			if arith.Of(rule).Algorithm == arith.SlidingWindow {
				bound += arith.Of(rule).Share
			}
			most, least := int64(oracle.Fullest(list, int64(window))), len(list)
			for at := from + int64(window); at+int64(window) <= s.now; at += int64(window) / 20 {
				begin, _ := slices.BinarySearch(list, at+1)
				end, _ := slices.BinarySearch(list, at+int64(window)+1)
				least = min(least, end-begin)
			}
			if most > bound {
				t.Errorf("%v, seed %d: %d admitted in a window, bound %d", rule, seed, most, bound)
			}
			// A log of all nodes would admit the limit in every window, from the first request
			// on. What came in one bucket leaves a window nearly all at once, so that less than
			// the limit may be in one that begins in between.
			got, want := int64(len(list)), int64(lim)*(s.now-from)/int64(window)
			inBucket := 3 * lim / 10 // at 3-fold overload
			if got < want*97/100 || least < lim-inBucket {
				t.Errorf("%v, seed %d: %d of %d admitted of an overloaded key, at least %d in a window", rule, seed, got, want, least)
			}
			for _, n := range s.nodes {
				if n.stats.RolledBack.Load()+n.stats.Losses.Load() != 0 {
					t.Errorf("%v, seed %d: a loss was seen where there was none", rule, seed)
				}
			}
			if seed == 0 {
				t.Logf("%v: most %d, least %d in a window, bound %d", rule, most, least, bound)
			}
		}
	}
}

// TestPromiseNearLimitTrigger: without it the overshoot is far larger.
func TestPromiseNearLimitTrigger(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("sliding", 1000, time.Second))
	s := newSim(t, 1, 3, rule)
	s.run(2 * time.Second)
	list := s.overload(10*time.Second, rule, 3333)
	most := oracle.Fullest(list, int64(time.Second))
	t.Logf("10-fold overload, 1 s window: %d of 1000", most)
	if most > 1200 {
		t.Errorf("%d admitted in a window of 1000: reports near the limit come too late", most)
	}
}

// TestPromiseOutage: cut off from Redis, the fleet admits about one limit per
// window (FairShare), or what the other policies say.
func TestPromiseOutage(t *testing.T) {
	const lim, window = 300, 5 * time.Second
	rule := limit.Must(limit.SlidingWindow("sliding", lim, window))
	for _, c := range []struct {
		policy   reconcile.Fallback
		min, max int64
	}{{reconcile.FairShare, lim * 90 / 100, lim}, {reconcile.FullLimit, 3 * lim * 90 / 100, 3 * lim}, {reconcile.FailClosed, 0, 0}, {reconcile.FailOpen, 10_000, 20_000}} {
		s := newSim(t, 1, 0, rule)
		for range 3 {
			s.addNode(Options{Fallback: c.policy})
		}
		s.run(3 * time.Second)
		s.overload(2*time.Second, rule, 100)
		s.down = true
		s.run(2 * time.Second)
		start := s.now
		list := s.overload(15*time.Second, rule, 1000)
		most := int64(oracle.Fullest(list, int64(window)))
		each := int64(len(list)) * int64(window) / (s.now - start)
		// A true window may hold a bucket's share more.
		if most > c.max+c.max/arith.DefaultBuckets || each < c.min {
			t.Errorf("%v: %d admitted for each window, at most %d in one, want %d to %d", c.policy, each, most, c.min, c.max)
		}
		for _, n := range s.nodes {
			if n.core.State().Mode != reconcile.Degraded {
				t.Errorf("%v: %v during the outage", c.policy, n.core.State())
			}
		}
	}
}

// TestPromiseLostData: when Redis loses everything the nodes notice within a
// heartbeat, restore what they knew, and an exhausted key stays exhausted,
// also for a node that comes new.
func TestPromiseLostData(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.SlidingWindow("sliding", 500, time.Hour)),
		limit.Must(limit.FixedWindow("fixed", 500, time.Hour)),
		limit.Must(limit.TokenBucket("funnel", 1, time.Hour, 500)),
	} {
		for seed := range uint64(20) {
			s := newSim(t, seed, 3, rule)
			s.run(2 * time.Second)
			admitted := len(s.overload(3*time.Second, rule, 100))
			s.run(2 * time.Second) // all is reported
			s.redis.wipe()
			s.run(time.Second + 100*time.Millisecond) // a heartbeat, with its jitter
			for _, n := range s.nodes {
				if n.stats.Losses.Load() == 0 {
					t.Fatalf("%v, seed %d, %s: did not notice the loss", rule, seed, n.name)
				}
			}
			more := len(s.overload(2*time.Second, rule, 100))
			if admitted < 500 || more > 0 {
				t.Fatalf("%v, seed %d: %d admitted before the loss, %d after", rule, seed, admitted, more)
			}
			fresh := s.addNode(Options{})
			s.run(2 * time.Second)
			fresh.take("hot", rule, 0)
			s.run(time.Second)
			if fresh.take("hot", rule, 1).Allowed {
				t.Fatalf("%v, seed %d: a new node found the exhausted key empty", rule, seed)
			}
		}
	}
}

// TestPromiseReturningKey: a node that comes back to a key after a while, in
// which others have used it up, finds out with its first check, as if the key
// were new to it.
func TestPromiseReturningKey(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("sliding", 1000, time.Hour))
	s := newSim(t, 4, 2, rule)
	s.run(2 * time.Second)
	s.nodes[1].take("hot", rule, 1)
	s.run(time.Minute)
	for range 999 {
		s.nodes[0].take("hot", rule, 1)
	}
	s.run(time.Second)
	got := 0
	for range 100 {
		if s.nodes[1].take("hot", rule, 1).Allowed {
			got++
		}
		s.run(time.Millisecond)
	}
	if got > 5 {
		t.Errorf("%d admitted to an exhausted key by a node with an old view", got)
	}
}
