package clock

import (
	"sync"
	"testing"
	"time"
)

// A clock that is set back stands still, for all who read it at the same time.
func TestForwardNeverGoesBack(t *testing.T) {
	hands := NewManual(time.Unix(1000, 0))
	r := ForwardOf(hands)
	if !r.Steady() {
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
