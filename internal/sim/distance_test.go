package sim

import (
	"testing"
	"time"
)

// Fault 93: Redis is far away. Nobody takes that for an overload: reports go on travelling together,
// no unit waits longer than it takes to collect it and to hear of it, and the fleet is as exact as the
// distance allows: see docs/guarantees.md.
func TestSimDistance(t *testing.T) {
	oneGoroutine(t)
	const (
		limits, buckets = 20, 10
		rate            = 10 // checks of a key a second on the other node
	)
	for _, trip := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond, 150 * time.Millisecond} {
		f := playSmall(smallRow{
			nodes: 2, keys: 200, rule: smallWindow(limits, 10*time.Second), perSecond: 2 * rate, length: 25 * time.Second, far: int64(trip / 2),
		}, *simSeed)
		most := time.Second + 100*time.Millisecond + 2*trip + 50*time.Millisecond
		exchange := trip + time.Millisecond                                                   // the simulator adds that
		fullest := limits + limits/buckets + 1 + rate*(3*exchange+time.Millisecond).Seconds() // nothing is left
		t.Logf("%v: fullest window %.1f units of %.1f, oldest pending unit %v, %.0f reports and %.1f script calls a second, %.2f %% refused wrongly",
			trip, f.most*limits, fullest, f.oldest, f.reports, f.scripts, 100*f.refused)
		if f.most*limits > fullest { // mean over the keys
			t.Errorf("%v away: the fullest window has %.1f units, at most %.1f", trip, f.most*limits, fullest)
		}
		if f.oldest > most {
			t.Errorf("%v away: a unit was pending for %v, at most %v", trip, f.oldest, most)
		}
		if f.refused > 0.01 {
			t.Errorf("%v away: %.2f %% refused wrongly", trip, 100*f.refused)
		}
	}
}
