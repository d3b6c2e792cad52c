package hybrid

import (
	"testing"
	"time"
)

// Fault 93: Redis is far away. Nobody takes that for an overload: reports go on travelling together,
// no unit waits longer than it takes to collect it and to hear of it, and the fleet is as exact as the
// distance allows.
func TestSimDistance(t *testing.T) {
	oneGoroutine(t)
	rule := smallWindow(20, 10*time.Second)
	for _, c := range []struct {
		trip    time.Duration
		fullest float64 // units, mean over the keys
	}{{time.Millisecond, 23}, {20 * time.Millisecond, 25}, {40 * time.Millisecond, 27}, {80 * time.Millisecond, 28}, {150 * time.Millisecond, 29}} {
		f := playSmall(smallRow{
			nodes: 2, keys: 200, rule: rule, perSecond: 20, length: 25 * time.Second, far: int64(c.trip / 2),
		}, *simSeed)
		most := time.Second + 100*time.Millisecond + 2*c.trip + 50*time.Millisecond
		t.Logf("%v: fullest window %.1f units, oldest pending unit %v, %.0f reports and %.1f script calls a second, %.2f %% refused wrongly",
			c.trip, f.most*20, f.oldest, f.reports, f.scripts, 100*f.refused)
		if f.most*20 > c.fullest {
			t.Errorf("%v away: the fullest window has %.1f units, at most %.0f", c.trip, f.most*20, c.fullest)
		}
		if f.oldest > most {
			t.Errorf("%v away: a unit was pending for %v, at most %v", c.trip, f.oldest, most)
		}
		if f.refused > 0.01 {
			t.Errorf("%v away: %.2f %% refused wrongly", c.trip, 100*f.refused)
		}
	}
}
