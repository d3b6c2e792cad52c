package local

import (
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ limit.Limiter = (*Limiter)(nil)

// start is where manual clocks begin: far from zero, as real ones do.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newLimiter(tb testing.TB, o Options) *Limiter {
	tb.Helper()
	l, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	return l
}

// slow is a funnel that leaks nothing worth mentioning while a test runs.
func slow(capacity int64) *limit.Rule {
	return limit.Must(limit.Funnel("slow", capacity, 1, 24*time.Hour/time.Duration(max(capacity, 1))*10))
}

// until waits for what other goroutines are about to bring about.
func until(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(deadline) {
			tb.Fatalf("still waiting for %s after 20 s", what)
		}
	}
}
