package clock

import (
	"sync"
	"testing"
	"time"
)

// A clock that is set back stands still, for all who read it at the same time.
func TestForwardNeverGoesBack(t *testing.T) {
	hands := NewManual(time.Unix(1000, 0))
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
	coarse := NewCoarse(time.Millisecond)
	defer coarse.Stop()
	manual := NewManual(time.Unix(100, 0))
	for _, of := range []struct {
		clock  Clock
		steady bool
	}{{nil, true}, {System{}, true}, {coarse, true}, {manual, false}, {Skewed{Of: System{}}, false}} {
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
