package local

import (
	"math"
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A limiter refuses what cannot be asked, for ever, and hands nothing back.
//
// Faults 41, 42, 43, 44: no n takes more than it was admitted for.
func TestExtremeN(t *testing.T) {
	l := newLimiter(t, Options{})
	for _, r := range everyRule(t, 5) {
		if res := l.Take("k", r, 3); !res.Allowed || res.Remaining != 2 {
			t.Fatalf("%v: %+v", r, res)
		}
		for _, n := range []int64{math.MinInt64, -1, 0, 1, 2, 3, 5, 6, 1 << 31, 1 << 53, math.MaxInt64} {
			before := l.Peek("k", r).Remaining
			res, yes := l.Take("k", r, n), n >= 0 && n <= before
			if never := n < 0 || n > 5; res.Allowed != yes || never != (res.RetryAfter == limit.Never) {
				t.Errorf("%v, n = %d with %d left: %+v", r, n, before, res)
			}
			want := before
			if yes {
				want -= n
			}
			if got := l.Peek("k", r).Remaining; got != want {
				t.Errorf("%v, n = %d: %d left, then %d", r, n, before, got)
			}
		}
	}
}
