package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Shards by themselves share what may be under way: they may all be on one server.
func TestHiddenShardsAtSaturation(t *testing.T) {
	wide := limit.Must(limit.SlidingWindowBuckets("wide", 1_000_000, 1000*time.Second, 1000))
	for _, unmapped := range []bool{false, true} {
		s := emptySim(t, 1, Options{Shards: 64}, 1, []*limit.Rule{wide})
		s.oracle.loose, s.unmapped = true, unmapped
		n, keys := s.slowAndFull(4, wide)
		for range 10 {
			for _, key := range keys {
				n.take(key, wide, 1)
			}
			s.run(time.Second)
		}
		s.run(20 * time.Second)
		if f := n.stats.Failures.Load(); f > 2 {
			t.Errorf("unknown client %v: %d exchanges have failed on a healthy server, which was %v", unmapped, f, n.modes)
		}
	}
}

// A slow server has found its budget. The client calls it by another address at times.
func TestBudgetOfARenamedServer(t *testing.T) {
	wide := limit.Must(limit.SlidingWindowBuckets("wide", 1_000_000, 1000*time.Second, 1000))
	for _, renamed := range []bool{false, true} {
		s := emptySim(t, 1, Options{Shards: 64}, 1, []*limit.Rule{wide})
		s.oracle.loose = true
		n, keys := s.slowAndFull(20, wide)
		other := make([]string, 64)
		for i := range other {
			other[i] = "other"
		}
		for range 30 {
			for _, key := range keys {
				n.take(key, wide, 1)
			}
			s.run(time.Second)
			if renamed {
				n.core.Place(other)
			}
		}
		f := n.stats.Failures.Load()
		if f > 10 {
			t.Errorf("renamed %v: %d exchanges have failed", renamed, f)
		}
	}
}

// slowAndFull makes the server slow, enters a node, and fills 400 keys in Redis.
func (s *sim) slowAndFull(slow int64, rule *limit.Rule) (n *simNode, keys []string) {
	v := s.servers[0]
	v.capacity = usual()
	v.capacity.slow = slow
	s.excuse(v)
	n = s.addNode(Options{})
	s.run(3 * time.Second)
	n.modes = nil
	for i := range 400 {
		keys = append(keys, fmt.Sprint("key", i))
		v.fill(keys[i], rule)
	}
	return n, keys
}
