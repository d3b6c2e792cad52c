package limittest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Start is where manual clocks begin: far from zero, as real ones do.
var Start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Names returns n keys.
func Names(prefix string, n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("%s %d", prefix, i)
	}
	return s
}

// Cases returns how many cases a test that takes long tries: all of them with CI=true in the environment,
// few without.
func Cases(all, few int) int {
	if os.Getenv("CI") == "true" {
		return all
	}
	return few
}

// Slow returns a leaky bucket that leaks next to nothing while a test runs.
func Slow(capacity int64) *limit.Rule {
	return limit.Must(limit.TokenBucket("slow", 1, 30*time.Hour/time.Duration(max(capacity, 1)), capacity))
}

// FunnelRule returns a leaky bucket with the name test.
func FunnelRule(tb testing.TB, capacity, units int64, per time.Duration) *limit.Rule {
	tb.Helper()
	r, err := limit.TokenBucket("test", units, per, capacity)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// WindowRule returns a sliding window with the name test.
func WindowRule(tb testing.TB, lim int64, window time.Duration, buckets int) *limit.Rule {
	tb.Helper()
	r, err := limit.SlidingWindowBuckets("test", lim, window, buckets)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}
