package limit

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// A difference of spans is exact whichever of the two is later: added to the earlier
// one it gives the later one.
func TestDiff(t *testing.T) {
	r := Must(Funnel("f", 10, 7, time.Second))
	for _, a := range []arith.Span{{}, {NS: 5, Rem: 3}, {NS: 5, Rem: 6}, {NS: 1 << 60, Rem: 1}} {
		for _, b := range []arith.Span{{}, {NS: 5, Rem: 3}, {NS: 4, Rem: 6}, {NS: 1 << 61, Rem: 2}} {
			d := r.Diff(a, b)
			if d.Rem < 0 || d.Rem >= 7 || (d.NS < 0) != a.Less(b) || r.Add(d, b) != a {
				t.Errorf("%v - %v is %v", a, b, d)
			}
		}
	}
	if d := r.Diff(arith.Span{NS: math.MinInt64}, arith.Span{NS: 1}); d.NS != math.MinInt64 {
		t.Errorf("it wraps: %v", d)
	}
}
