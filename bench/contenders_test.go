package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Every contender must admit its limit and not a unit more: a rival that has been told something else
// makes the comparison a lie. A peek takes nothing. A key that is used up does not stand in another's
// way, except where there is only one limiter for everybody.
func TestContenders(t *testing.T) {
	const small = 100 // used up quickly, and does not come back meanwhile
	rule, keys := limit.Must(limit.TokenBucket("small", 1, time.Hour, small)), keyNames(2)
	wrong := func(t *testing.T, c contender) string {
		a := c.open(t, keys, rule)
		a.allow(keys[0])
		for range 2 * small {
			if a.peek != nil && !a.peek(keys[0]) {
				return "no room after one unit"
			}
		}
		n := 1
		for range 3 * small {
			if a.allow(keys[0]) {
				n++
			}
		}
		if n != small || a.peek != nil && a.peek(keys[0]) {
			return fmt.Sprintf("admitted %d, want %d, or room is left", n, small)
		}
		if got := a.allow(keys[1]); got == c.keyless {
			return fmt.Sprintf("another key: %v", got)
		}
		return ""
	}
	for _, c := range join(inProcess, single, byRule, byState, overRedis) {
		t.Run(c.name, func(t *testing.T) {
			// A window on the wall clock may turn meanwhile. That is bad luck once, and a fault twice.
			if wrong(t, c) != "" {
				if what := wrong(t, c); what != "" {
					t.Error(what)
				}
			}
		})
	}
}
