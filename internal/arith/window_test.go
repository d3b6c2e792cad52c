package arith_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
)

// What leaves the oldest bucket is what the words say, for any numbers; more and more as
// time passes, never so much less of fewer units that those which are left would count
// for more; and GoneAt and AreGone say the same.
//
// Fault 85: what is taken off is not more than one bucket's share before the last unit leaves.
func TestGone(t *testing.T) {
	const MaxUnits = 1 << 53
	rng := rand.New(rand.NewPCG(1, 85))
	some := func(most int64) int64 {
		switch rng.IntN(4) {
		case 0:
			return rng.Int64N(min(most, 12) + 1)
		case 1:
			return most - rng.Int64N(min(most, 3)+1)
		}
		return rng.Int64N(most) >> rng.IntN(50)
	}
	for range 5000 {
		length := time.Duration(1e6 + some(100*365*24*int64(time.Hour)-1e6))
		rule := limittest.WindowRule(t, some(MaxUnits), length, 1+int(some(1000-1)))
		r := arith.Of(rule)
		units, last := some(MaxUnits-1)+1, some(int64(r.Width))
		at := []int64{0, some(int64(r.Width)), last, max(last-1, 0), int64(r.Width) - 1}
		if n := some(units); n > 0 {
			at = append(at, r.GoneAt(units, n, last), max(r.GoneAt(units, n, last)-1, 0))
		}
		for _, passed := range at {
			want := limittest.Gone(rule, units, last, passed)
			if got := r.Gone(units, last, passed); got != want {
				t.Fatalf("%v in %d, after %d: %d of %d units are gone, the last came after %d, want %d", r, r.Kept, passed, got, units, last, want)
			}
			for _, n := range []int64{0, 1, want, want + 1, units} {
				if n > units {
					continue
				}
				if r.AreGone(units, n, last, passed) != (n <= want) || (r.GoneAt(units, n, last) <= passed) != (n <= want) {
					t.Fatalf("%v in %d, after %d: %d of %d are gone: %v, from %d on, want %d", r, r.Kept, passed, n, units,
						r.AreGone(units, n, last, passed), r.GoneAt(units, n, last), want)
				}
			}
			if left := units - want; units > 1 && units-1-r.Gone(units-1, last, passed) > left {
				t.Fatalf("%v: of %d units %d count, of one less more", r, units, left)
			}
		}
	}
}
