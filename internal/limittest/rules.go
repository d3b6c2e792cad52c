package limittest

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Built returns a rule that a constructor has returned, or ends the test.
func Built(tb testing.TB) func(*limit.Rule, error) *limit.Rule {
	return func(r *limit.Rule, err error) *limit.Rule {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return r
	}
}

// CalendarOf returns the calendar of a quota.
func CalendarOf(r *limit.Rule) limit.Calendar {
	c := arith.Of(r).Calendar
	return limit.Calendar{Unit: limit.Unit(c.Unit), Zone: c.Zone, First: c.First}
}

// Funnel returns a leaky bucket with the name f.
func Funnel(tb testing.TB, capacity, units int64, per time.Duration) *limit.Rule {
	tb.Helper()
	return Built(tb)(limit.TokenBucket("f", units, per, capacity))
}

// Sliding returns a sliding window with the name s.
func Sliding(tb testing.TB, n int64, window time.Duration, buckets int) *limit.Rule {
	tb.Helper()
	return Built(tb)(limit.SlidingWindowBuckets("s", n, window, buckets))
}

// Fixed returns a fixed window with the name x.
func Fixed(tb testing.TB, n int64, window time.Duration) *limit.Rule {
	tb.Helper()
	return Built(tb)(limit.FixedWindow("x", n, window))
}

// Daily returns a quota with the name c, for a day that ends in twelve hours, wherever that is.
func Daily(tb testing.TB, n int64) *limit.Rule {
	tb.Helper()
	const day = 24 * 60 * 60
	zone := time.FixedZone("here", day/2-int(clock.System{}.Now().Seconds())%day)
	return Built(tb)(limit.Quota("c", n, limit.Calendar{Unit: limit.Day, Zone: zone}))
}

// SlidingLog returns a sliding log with the name l.
func SlidingLog(tb testing.TB, n int64, window time.Duration) *limit.Rule {
	tb.Helper()
	return Built(tb)(limit.SlidingLog("l", n, window))
}

// Each returns a rule of each algorithm: 10 units, in an hour or a day.
func Each(tb testing.TB) []*limit.Rule {
	tb.Helper()
	return []*limit.Rule{Funnel(tb, 10, 10, time.Hour), Sliding(tb, 10, time.Hour, 10), Fixed(tb, 10, time.Hour), Daily(tb, 10), SlidingLog(tb, 10, time.Hour)}
}
