package sim

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Redis becomes many times slower while windows of 1,000 buckets are to be reported. A flight that
// had no answer in time waits longer the next time, and so gets through. What it takes is booked once,
// and the mode changes only by what heartbeats say, which wait behind the flights.
//
// Fault 75: a batch takes Redis longer than the time-out.
func TestSimSlowRedis(t *testing.T) {
	const keys, buckets, span = 60, 1000, 100_000 * time.Second
	rule := limit.Must(limit.SlidingWindowBuckets("wide", 1_000_000, span, buckets))
	for _, slow := range []int64{1, 50, 200, 800} {
		t.Run(fmt.Sprint(slow, " times slower"), func(t *testing.T) {
			s := emptySim(t, 1, Options{Shards: 2}, 1, []*limit.Rule{rule})
			s.oracle.loose = true // it knows nothing of the units that are there
			v := s.servers[0]
			v.capacity = usual()
			width := int64(arith.Of(rule).Width)
			for i := range keys {
				w := &modelWindow{buckets: map[int64]int64{}, last: map[int64]int64{}, gone: v.time() + 2*int64(span)}
				for age := range int64(buckets) {
					w.buckets[v.time()/width-age] = 1
				}
				v.model.windows[s.keyspace().CounterKey(rule, fmt.Sprint("key", i))] = w
			}
			n := s.addNode(Options{})
			s.run(2 * time.Second)
			v.capacity.slow = slow
			for i := range keys {
				n.take(fmt.Sprint("key", i), rule, 5)
			}
			began, most := s.now, int64(0)
			for n.unsynced() > 0 && s.now-began < int64(10*time.Minute) {
				s.run(100 * time.Millisecond)
				for _, sh := range n.look().Shards {
					most = max(most, int64(sh.Flight.Late))
				}
			}
			t.Logf("booked within %v, %d attempts of a flight without an answer, %d failures, %d changes of state, %v",
				time.Duration(s.now-began), most, n.stats.Failures.Load(), n.stats.StateChanges.Load(), n.modes)
			if n.unsynced() > 0 {
				t.Fatalf("%d units are not booked: %v", n.unsynced(), n.core.State())
			}
			for key, w := range maps.All(v.model.windows) {
				if w.sum() != buckets+5 {
					t.Errorf("Redis counts %d of %s, want %d", w.sum(), key, buckets+5)
				}
			}
			if acked := n.stats.Acked.Load(); acked != 5*keys {
				t.Errorf("%d units are acknowledged of %d", acked, 5*keys)
			}
		})
	}
}
