package hybrid

import (
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
)

// Fault 35: a clock that is set back stands still until it has caught up, and the
// clocks that nobody can set back are read as they are.
func TestNowNeverGoesBack(t *testing.T) {
	hands := clock.NewManual(time.Unix(1000, 0))
	l := &Limiter{clock: readerOf(hands)}
	for _, step := range []struct{ by, want time.Duration }{{0, 1000}, {5, 1005}, {-3, 1005}, {2, 1005}, {2, 1006}} {
		hands.Advance(step.by * time.Second)
		if now := time.Duration(l.now()); now != step.want*time.Second {
			t.Errorf("moved by %d s: %v, want %d s", step.by, now, step.want)
		}
	}
	if readerOf(nil) != clock.ReaderOf(nil) {
		t.Error("a steady clock is watched")
	}
}

// So do those who read it at the same time.
func TestNowNeverGoesBackForAnybody(t *testing.T) {
	hands := clock.NewManual(time.Unix(1000, 0))
	r := readerOf(hands)
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
