package local

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter that lends to who asks it decides as one that does not.
func TestPocketsAreTheSame(t *testing.T) {
	rules := []*limit.Rule{
		funnelRule(t, 1000, 7, 3*time.Millisecond), funnelRule(t, 5, 1000, time.Second), funnelRule(t, 0, 1, time.Second),
		funnelRule(t, 1_000_000, 1_000_000, time.Second), windowRule(t, 10, 100*time.Millisecond, 10),
		windowRule(t, 1000, 10*time.Second, 10), windowRule(t, 60, time.Hour, 1),
	}
	for i, r := range rules {
		for _, linked := range []bool{false, true} {
			answers, units := 0, 0
			for seed := range uint64(60) {
				a, u := slotted(t, r, linked, true, seed)
				answers, units = answers+a, units+u
				if t.Failed() {
					t.Fatalf("rule %d, %v, linked %v, seed %d", i, r, linked, seed)
				}
			}
			if answers < 500 || r.Limit() > 10 && units < 300 {
				t.Errorf("%v, linked %v: %d answers from pockets and slots, %d units admitted", r, linked, answers, units)
			}
		}
	}
}
