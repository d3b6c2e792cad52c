package hybrid

import (
	"testing"
	"time"
)

func TestThrottle(t *testing.T) {
	var l throttle
	at, admitted := time.Hour, 0
	for range 100 {
		if skipped, ok := l.admit(at); ok {
			if admitted++; skipped != 0 {
				t.Errorf("%d skipped", skipped)
			}
		}
	}
	if admitted != logBurst {
		t.Errorf("%d at once, want %d", admitted, logBurst)
	}
	if w := l.wait(at); w != logEvery {
		t.Errorf("the next one in %v", w)
	}
	if skipped, ok := l.admit(at + logEvery); !ok || skipped != 100-logBurst {
		t.Errorf("%d skipped, %v", skipped, ok)
	}
	if _, ok := l.admit(at + logEvery); ok {
		t.Error("two in its place")
	}
}
