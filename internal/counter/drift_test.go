//go:build !race

package counter

import (
	"testing"
	"time"
)

// The race detector has nothing to find in one goroutine, and would make this
// take half a minute.

func TestFunnelDoesNotDriftOverADay(t *testing.T) {
	r := funnelRule(t, 10, 7, 3*time.Second)
	c := NewAlone("k", r, nil, 0)
	admitted := int64(0)
	for ms := range int64(24 * 3600 * 1000) {
		if ok, _, _ := c.allow(ms*1e6, 1, r); ok {
			admitted++
		}
	}
	last := int64(24*3600*1000-1) * 1e6
	want := 10 + last*7/int64(3*time.Second)
	if d := admitted - want; d < -1 || d > 1 {
		t.Fatalf("admitted %d in a day, the real number line admits %d", admitted, want)
	}
}
