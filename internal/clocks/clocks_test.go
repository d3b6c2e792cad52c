package clocks

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
)

// A clock that is set back stands still, for all who read it at the same time.
func TestForwardNeverGoesBack(t *testing.T) {
	hands := clock.NewManual(time.Unix(1000, 0))
	r := Forward(hands)
	if !steady(r) {
		t.Error("it may go back")
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i, last := 0, time.Duration(0); i < 20_000; i++ {
				hands.Advance(time.Duration((i*7+g)%11-5) * time.Microsecond)
				now := r.Now()
				if now < last {
					t.Errorf("%v after %v", now, last)
					return
				}
				last = now
			}
		})
	}
	wg.Wait()
}

// The clocks that nobody can set are read as they are.
func TestSteady(t *testing.T) {
	coarse := clock.NewCoarse(time.Millisecond)
	defer coarse.Stop()
	manual := clock.NewManual(time.Unix(100, 0))
	for _, of := range []struct {
		clock  clock.Clock
		steady bool
	}{{nil, true}, {clock.System{}, true}, {coarse, true}, {manual, false}, {wall{}, false}} {
		c := Or(of.clock)
		if steady(c) != of.steady {
			t.Errorf("%T: steady is %v", of.clock, steady(c))
		}
		if f := Forward(of.clock); !steady(f) || (f == c) != of.steady {
			t.Errorf("%T: read through %T", of.clock, f)
		}
	}
	if f := Forward(manual); Forward(f) != f {
		t.Error("watched twice")
	}
}

// wall is a clock of a user, which has no method Ahead.
type wall struct{}

func (wall) Now() time.Duration { return time.Duration(time.Now().UnixNano()) }

// Fault 35: a clock knows by how much the wall clock differs from it.
func TestAhead(t *testing.T) {
	coarse := clock.NewCoarse(time.Hour)
	defer coarse.Stop()
	for _, c := range []clock.Clock{clock.System{}, coarse, Forward(coarse)} {
		if d := Ahead(c); d < -time.Minute || d > time.Minute {
			t.Errorf("%T: the wall clock was set by %v", c, d)
		}
	}
	manual := clock.NewManual(time.Unix(100, 0))
	for _, c := range []clock.Clock{manual, Forward(manual), wall{}} {
		if d := Ahead(c); d != 0 {
			t.Errorf("%T shows the time of day, and is %v behind it", c, d)
		}
	}
	synctest.Test(t, func(t *testing.T) { // its wall clock shows the year 2000
		time.Sleep(time.Second)
		if now := (clock.System{}).Now() + Ahead(clock.System{}); int64(now) != time.Now().UnixNano() {
			t.Errorf("%v, but the wall clock shows %v", time.Unix(0, int64(now)), time.Now())
		}
	})
}

func TestUntil(t *testing.T) {
	if d := Until(time.Now().Add(time.Hour)); d > time.Hour || d < 59*time.Minute {
		t.Errorf("an hour from now: %v", d)
	}
	if d := Until(time.Now().Add(-time.Hour)); d > -time.Hour {
		t.Errorf("an hour ago: %v", d)
	}
}

func TestOr(t *testing.T) {
	m := clock.NewManual(time.Unix(1000, 0))
	if Or(nil) != clock.Clock(clock.System{}) || Or(m) != clock.Clock(m) {
		t.Error("Or")
	}
}
