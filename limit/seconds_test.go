package limit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Waiting the seconds that are told is waiting long enough, and no shorter whole number
// of at least 1 is.
//
// Fault 59: rounded up to whole seconds, at least 1.
func TestRetryAfterSeconds(t *testing.T) {
	for _, c := range []struct {
		res  Result
		want int
		ok   bool
	}{
		{Result{RetryAfter: 1}, 1, true},
		{Result{RetryAfter: time.Second}, 1, true},
		{Result{RetryAfter: time.Second + 1}, 2, true},
		{Result{RetryAfter: 0}, 1, true}, // beside an error of Redis
		{Result{RetryAfter: -time.Hour}, 1, true},
		{Result{RetryAfter: Never}, 0, false},
		{Result{Allowed: true}, 0, false},
		{Result{Allowed: true, WouldRefuse: true, RetryAfter: time.Minute}, 0, false},
		{Result{RetryAfter: Never, Source: SourceInvalid}, 0, false},
	} {
		if n, ok := c.res.RetryAfterSeconds(); n != c.want || ok != c.ok {
			t.Errorf("%+v: %d, %v, want %d, %v", c.res, n, ok, c.want, c.ok)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		wait := time.Duration(rng.Uint64() >> (1 + rng.IntN(63)))
		if wait == Never {
			continue
		}
		n, ok := Result{RetryAfter: wait}.RetryAfterSeconds()
		if !ok || n < 1 {
			t.Fatalf("%v: %d, %v", wait, n, ok)
		}
		exact := float64(wait) / float64(time.Second) // off by 1 in 2^53 at most
		if slack := exact/(1<<52) + 1e-9; n < math.MaxInt32 && (float64(n) < exact-slack || n > 1 && float64(n-1) >= exact+slack) {
			t.Fatalf("%v: %d s", wait, n)
		}
	}
}

// A check that does not say how many units asks for one.
//
// Fault 87: a `Check` without N.
func TestCheckUnits(t *testing.T) {
	for n, want := range map[int64]int64{0: 1, 1: 1, 7: 7, -1: -1, math.MinInt64: math.MinInt64} {
		if got := (&Check{N: n}).Units(); got != want {
			t.Errorf("N of %d: %d units, want %d", n, got, want)
		}
	}
}
