package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Every check of 5,000 keys of a small limit is urgent at once, on four nodes, and Redis needs
// more than a second to book them. A key that all nodes ask far more often than its limit allows
// does not wait for them: its report overtakes theirs as soon as twice as many of its units wait as
// make it urgent.
//
// Fault 94: in the order of their arrival four times the limit is admitted.
func TestUrgentFlood(t *testing.T) {
	const nodes, keys, slow, per, hotFor = 4, 5_000, 12, 10 * time.Second, 4 * time.Second
	small := limit.Must(limit.SlidingWindow("small", 2, time.Minute))
	for _, c := range []struct {
		hot   *limit.Rule
		every int // ms between two checks of a node
	}{
		{limit.Must(limit.TokenBucket("hot", limit.Tokens{Burst: 20, Refill: 20, Per: per})), 20},
		{limit.Must(limit.SlidingWindow("hot", 1000, per)), 1},
	} {
		t.Run(c.hot.String(), func(t *testing.T) {
			hot := c.hot
			s, _ := saturated(t, nodes, slow, small, hot)
			asked, admitted := 0, int64(0)
			var behind time.Duration
			for ms := range 1300 + int(hotFor/time.Millisecond) {
				s.run(time.Millisecond)
				for want := min(keys, keys*max(ms-1000, 0)/500); asked < want; asked++ {
					for _, n := range s.nodes {
						n.take(fmt.Sprint("key", asked), small, 1)
					}
				}
				for i, n := range s.nodes {
					if ms >= 1300 && ms%c.every == c.every*i/nodes && n.take("hot", hot, 1).Allowed {
						admitted++
					}
					behind = max(behind, time.Duration(n.stats.Behind.Load()))
				}
			}
			// What one process admits at most, and what each other node hides until its report has
			// overtaken the others and is booked. Redis takes 30 ms for an exchange here.
			units := arith.Of(hot).Limit
			most := units
			if hot.Algorithm() == limit.AlgorithmFunnel {
				most += units * int64(hotFor) / int64(per)
			} else {
				most += units / int64(arith.Of(hot).Kept)
			}
			urgent := max(units/(4*nodes), min(units/(2*nodes), 4))
			most += (nodes - 1) * (2*urgent + 1 + (30*3/2+1)/int64(c.every))
			t.Logf("%d admitted, at most %d; reports wait for %v, %d exchanges have failed", admitted, most, behind, s.failures())
			if admitted > most || admitted < units {
				t.Errorf("%d admitted, want %d to %d", admitted, units, most)
			}
			if behind < time.Second/2 || s.failures() > 0 {
				t.Errorf("reports wait for %v by Stats, %d exchanges have failed", behind, s.failures())
			}
			s.stayedSynced()
			s.run(5 * time.Second)
			s.reportedOnce()
		})
	}
}

// 2,000 new keys a second on a node whose goroutines wait 20 ms for a processor each time: when a call
// begins, when its answer has come, and when it is handled. Redis itself is idle, so that reports
// stay full.
//
// Fault 94: a busy client took that for an overload, and reported 32 keys per call.
func TestFloodOnABusyMachine(t *testing.T) {
	cold := limit.Must(limit.TokenBucket("cold", limit.Tokens{Burst: 10, Refill: 10, Per: time.Hour}))
	s, v := saturated(t, 1, 1, cold)
	n := s.nodes[0]
	n.starved = int64(20 * time.Millisecond)
	scripts, keys := v.scripts, 0
	for range 500 {
		s.run(10 * time.Millisecond)
		for range 20 {
			n.take(fmt.Sprint("key", keys), cold, 1)
			keys++
		}
	}
	s.run(time.Second)
	perScript := keys / (v.scripts - scripts)
	t.Logf("%d keys per script call, budget %v", perScript, s.nodes[0].server(0).Budget)
	if perScript < 100 { // 2,000 keys a second, a call each 60 ms
		t.Errorf("%d keys per script call", perScript)
	}
	s.stayedSynced()
	s.reportedOnce()
}
