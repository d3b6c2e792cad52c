package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter that died after it was looked up decides nothing, and neither do the
// others.
func TestTakeAllOfADeadCounter(t *testing.T) {
	r := limit.Must(limit.FixedWindow("r", 5, time.Hour))
	checks := []limit.Check{{Key: "a", Rule: r, N: 1}, {Key: "b", Rule: r, N: 1}, {Key: "c", Rule: r, N: 1}}
	for dead := range checks {
		var list []Asked
		for i, q := range checks {
			c := New(q.Key, r, uint64(i), new(Group), 0)
			c.dead = i == dead
			list = append(list, Asked{Counter: c, Check: i})
		}
		if TakeTogether(list, checks, 0, make([]limit.Result, 3)) {
			t.Errorf("decided with check %d dead", dead)
		}
		for _, a := range list {
			if !a.Counter.mu.TryLock() || number(a.Counter.window(), "newer") != 0 {
				t.Errorf("check %d dead: %q is locked, or has %d units", dead, a.Counter.Key(), number(a.Counter.window(), "newer"))
			}
		}
	}
}
