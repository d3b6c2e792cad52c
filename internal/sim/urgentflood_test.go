package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// 5,000 keys of a small limit are urgent at once, on four nodes, and Redis needs more than a second to
// book them. A key that all nodes ask far more often than its limit allows does not wait for them: its
// report goes first as soon as as many units have come while it waits as make it urgent. It does not
// matter how many units the others have, nor whether these come in one check.
//
// Fault 94: in the order of their arrival four times the limit is admitted.
// Fault 84: new keys beside a hot one, thousands a second.
// Fault 110: all that overtake did so in the order of their arrival, with the same result.
func TestUrgentFlood(t *testing.T) {
	for _, hot := range []hotKey{
		{limit.Must(limit.TokenBucket("hot", 20, hotPer, 20)), 20},
		{limit.Must(limit.SlidingWindow("hot", 1000, hotPer)), 1},
	} {
		for _, units := range []int64{1, 3, 6} {
			t.Run(fmt.Sprint(hot.rule, " others one by one ", units), func(t *testing.T) {
				hot.besideFlood(t, 2*units, 500, func(int) (n, times int64) { return 1, units })
			})
		}
		for _, units := range []int64{10, 30} {
			t.Run(fmt.Sprint(hot.rule, " others in one check ", units), func(t *testing.T) {
				hot.besideFlood(t, 2*units, 500, func(int) (n, times int64) { return units, 1 })
			})
		}
		t.Run(fmt.Sprint(hot.rule, " others at the same instant"), func(t *testing.T) {
			hot.besideFlood(t, 20, 1, func(key int) (n, times int64) { return 1, int64(1 + key%10) })
		})
	}
}

// hotPer is the period of the rules of hot keys.
const hotPer = 10 * time.Second

// hotKey is a key that all nodes ask too often.
type hotKey struct {
	rule  *limit.Rule
	every int // ms between two checks of a node
}

// besideFlood has four nodes ask for 5,000 keys of a limit within so many ms, with checks for n units,
// several times. The hot key is asked from 300 ms before the end of a long flood on.
func (h hotKey) besideFlood(t *testing.T, limitOfOthers int64, within int, checks func(key int) (n, times int64)) {
	const nodes, keys, slow, start, hotFor = 4, 5_000, 12, 1300, 4 * time.Second
	others := limit.Must(limit.SlidingWindow("others", limitOfOthers, time.Minute))
	s, _ := saturated(t, nodes, slow, others, h.rule)
	asked, admitted, floodAt := 0, int64(0), start-min(within, 300)
	var behind time.Duration
	for ms := range start + int(hotFor/time.Millisecond) {
		s.run(time.Millisecond)
		for want := min(keys, keys*max(ms-floodAt, 0)/within); asked < want; asked++ {
			n, times := checks(asked)
			for range times {
				for _, node := range s.nodes {
					node.take(fmt.Sprint("key", asked), others, n)
				}
			}
		}
		for i, n := range s.nodes {
			if ms >= start && ms%h.every == h.every*i/nodes && n.take("hot", h.rule, 1).Allowed {
				admitted++
			}
			behind = max(behind, time.Duration(n.stats.Behind.Load()))
		}
	}
	most := h.most(nodes, hotFor)
	t.Logf("%d admitted, at most %d; reports wait for %v, %d exchanges have failed", admitted, most, behind, s.failures())
	if least := arith.Of(h.rule).Limit; admitted > most || admitted < least {
		t.Errorf("%d admitted, want %d to %d", admitted, least, most)
	}
	if behind < time.Second/2 || s.failures() > 0 {
		t.Errorf("reports wait for %v by Stats, %d exchanges have failed", behind, s.failures())
	}
	s.stayedSynced()
	s.run(5 * time.Second)
	s.reportedOnce()
}

// most returns what one process admits at most, and what each other node hides until its report has
// overtaken the others and is booked. Redis takes 30 ms for an exchange here.
func (h hotKey) most(nodes int64, hotFor time.Duration) int64 {
	units := arith.Of(h.rule).Limit
	most := units + units/int64(max(arith.Of(h.rule).Kept, 1))
	if arith.Of(h.rule).Algorithm == arith.TokenBucket {
		most = units + units*int64(hotFor)/int64(hotPer)
	}
	urgent := max(units/(4*nodes), min(units/(2*nodes), 4))
	return most + (nodes-1)*(2*urgent+1+(30*3/2+1)/int64(h.every))
}

// 2,000 new keys a second on a node whose goroutines wait 20 ms for a processor each time: when a call
// begins, when its answer has come, and when it is handled. Redis itself is idle, so that reports
// stay full.
//
// Fault 94: a busy client took that for an overload, and reported 32 keys per call.
func TestFloodOnABusyMachine(t *testing.T) {
	cold := limit.Must(limit.TokenBucket("cold", 10, time.Hour, 10))
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
