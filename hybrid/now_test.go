package hybrid

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/clocks"
)

// Fault 35: a clock that is set back stands still until it has caught up.
func TestNowNeverGoesBack(t *testing.T) {
	hands := clock.NewManual(time.Unix(1000, 0))
	l := &Limiter{clock: clocks.Forward(hands)}
	for _, step := range []struct{ by, want time.Duration }{{0, 1000}, {5, 1005}, {-3, 1005}, {2, 1005}, {2, 1006}} {
		hands.Advance(step.by * time.Second)
		if now := time.Duration(l.now()); now != step.want*time.Second {
			t.Errorf("moved by %d s: %v, want %d s", step.by, now, step.want)
		}
	}
}
