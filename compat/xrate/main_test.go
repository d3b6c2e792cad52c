package xrate_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/compat/xrate"
	"github.com/hybridlimit/hybridlimit/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// alone returns a limiter of this process, and its clock. Without a clock it has that of the system.
func alone(t testing.TB, c clock.Clock) *local.Limiter {
	t.Helper()
	lim, err := local.New(local.Options{Clock: c, MaxKeys: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

// over returns a Limiter over another limiter.
func over(t testing.TB, lim xrate.Base, r rate.Limit, burst int, c clock.Clock) *xrate.Limiter {
	t.Helper()
	l, err := xrate.New(lim, "k", "upstream", r, burst, xrate.Options{Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// manual returns a Limiter over one of this process, with a clock that stands still.
func manual(t testing.TB, r rate.Limit, burst int) (*xrate.Limiter, *clock.Manual) {
	t.Helper()
	c := clock.NewManual(start)
	return over(t, alone(t, c), r, burst, c), c
}

// at returns the time of a clock.
func at(c clock.Clock) time.Time { return time.Unix(0, int64(c.Now())) }

// admitted returns how many of n events are admitted one by one.
func admitted(l interface{ Allow() bool }, n int) (count int) {
	for range n {
		if l.Allow() {
			count++
		}
	}
	return count
}
