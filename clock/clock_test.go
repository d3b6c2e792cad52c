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

// Fault 35: a clock knows by how much the wall clock differs from it.
func TestAhead(t *testing.T) {
	coarse := NewCoarse(time.Hour)
	defer coarse.Stop()
	for _, c := range []Clock{System{}, coarse, Forward(coarse)} {
		if d := Ahead(c); d < -time.Minute || d > time.Minute {
			t.Errorf("%T: the wall clock was set by %v", c, d)
		}
	}
	manual := NewManual(time.Unix(100, 0))
	for _, c := range []Clock{manual, Forward(manual), Skewed{Of: System{}, Offset: time.Hour}} {
		if d := Ahead(c); d != 0 {
			t.Errorf("%T shows the time of day, and is %v behind it", c, d)
		}
	}
	synctest.Test(t, func(t *testing.T) { // its wall clock shows the year 2000
		time.Sleep(time.Second)
		if now := (System{}).Now() + Ahead(System{}); int64(now) != time.Now().UnixNano() {
			t.Errorf("%v, but the wall clock shows %v", time.Unix(0, int64(now)), time.Now())
		}
	})
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

func TestSkewed(t *testing.T) {
	m := NewManual(time.Unix(1000, 0))
	s := Skewed{Of: m, Offset: time.Hour, Start: m.Now(), Drift: time.Millisecond}
	m.Advance(10 * time.Second)
	if want := 1010*time.Second + time.Hour + 10*time.Millisecond; s.Now() != want {
		t.Errorf("shows %v, want %v", s.Now(), want)
	}
	if Or(nil) != Clock(System{}) || Or(m) != Clock(m) {
		t.Error("Or")
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
	if s := (Skewed{Of: m, Offset: -time.Hour}); s.Now() != 0 {
		t.Errorf("skewed: %v", s.Now())
	}
}

func TestUntil(t *testing.T) {
	if d := Until(time.Now().Add(time.Hour)); d > time.Hour || d < 59*time.Minute {
		t.Errorf("an hour from now: %v", d)
	}
	if d := Until(time.Now().Add(-time.Hour)); d > -time.Hour {
		t.Errorf("an hour ago: %v", d)
	}
}
