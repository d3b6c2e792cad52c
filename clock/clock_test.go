package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// Fault 35: the system's clock is read monotonically.
func TestSystemNeverGoesBack(t *testing.T) {
	last := System{}.Now()
	for range 10_000 {
		now := System{}.Now()
		if now < last {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
	if d := time.Until(time.Unix(0, int64(last))); d < -time.Minute || d > time.Minute {
		t.Errorf("the system clock is %v away from the wall", d)
	}
}

func TestCoarse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCoarse(10 * time.Millisecond)
		start := c.Now()
		time.Sleep(5 * time.Millisecond)
		if c.Now() != start {
			t.Error("it moved between ticks")
		}
		time.Sleep(96 * time.Millisecond)
		if d := c.Now() - start; d != 100*time.Millisecond {
			t.Errorf("after 101 ms it shows %v", d)
		}
		c.Stop()
		c.Stop()
		stopped := c.Now()
		time.Sleep(time.Second)
		if c.Now() != stopped {
			t.Error("it moved after Stop")
		}
	})
}

func TestManual(t *testing.T) {
	m := NewManual(time.Unix(100, 5))
	if m.Now() != 100*time.Second+5 {
		t.Errorf("starts at %v", m.Now())
	}
	if m.Advance(time.Second) != 101*time.Second+5 || m.Advance(-2*time.Second) != 99*time.Second+5 {
		t.Errorf("moved to %v", m.Now())
	}
	m.Set(time.Unix(7, 0))
	if m.Now() != 7*time.Second || NewManual(time.Time{}).Now() != 0 {
		t.Error("set or zero start is off")
	}
}

// Limiters count from 1970 on; a clock before that would make a funnel that was
// never used look full.
func TestNoClockShowsATimeBefore1970(t *testing.T) {
	m := NewManual(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC))
	if m.Now() != 0 || m.Advance(time.Second) != 0 {
		t.Errorf("manual: %v", m.Now())
	}
	m.Set(time.Unix(10, 0))
	if m.Advance(-time.Hour) != 0 {
		t.Errorf("set back: %v", m.Now())
	}
}
