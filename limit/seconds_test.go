package limit

import (
	"math"
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
		{Result{RetryAfter: 7*time.Second - 1}, 7, true},
		{Result{RetryAfter: Never - 1}, int(min(Never/time.Second+1, math.MaxInt)), true},
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
}
