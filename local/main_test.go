package local

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What tests of several packages use, by short names.
var (
	start = limittest.Start
	slow  = limittest.Slow
)

func newLimiter(tb testing.TB, o Options) *Limiter {
	tb.Helper()
	l, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}
