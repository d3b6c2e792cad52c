package counter

import (
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What tests of several packages use, by short names.
var (
	start      = limittest.Start
	names      = limittest.Names
	slow       = limittest.Slow
	funnelRule = limittest.FunnelRule
	windowRule = limittest.WindowRule
)

// allow is check, for counters whose life is not in question.
func (c *Counter) allow(now, n int64, rule *limit.Rule) (allowed bool, src limit.Source, ok bool) {
	return c.Check(now, n, rule)
}

func (c *Counter) take(now, n int64, rule *limit.Rule) (limit.Result, bool) {
	return c.Take(now, n, rule)
}

// peek returns what take would answer, and consumes nothing.
func (c *Counter) peek(now, n int64, rule *limit.Rule) (limit.Result, bool) {
	return c.Ask(now, n, rule, false)
}

// collect begins an exchange, and returns the report.
func (c *Counter) collect(now int64, from Queue) (rep report.Report, ok bool) {
	if ok = c.Collect(now, from); ok {
		rep = c.resend(now, false)
	}
	return rep, ok
}

// asks begins an exchange of a counter that is due.
func (c *Counter) asks(t *testing.T, now int64) {
	t.Helper()
	if !c.Collect(now, Normal) {
		t.Fatalf("%v: nothing to report", c.Rule())
	}
}

// resend returns the report of what is in flight.
func (c *Counter) resend(now int64, restore bool) (rep report.Report) {
	c.Report(now, restore, &rep)
	return rep
}

// pace has counters report once in d, if their rule lets them.
func pace(d time.Duration) Pace { return Pace{Interval: d / 5, MaxLag: d} }

// field returns an unexported field of a state, to be printed or compared.
func field(state any, name string) reflect.Value {
	return reflect.ValueOf(state).Elem().FieldByName(name)
}

// number is field of an integer.
func number(state any, name string) int64 { return field(state, name).Int() }

// numbers returns a field of each bucket of a window that is not empty, the oldest first.
func numbers(w *algorithm.Window, name string) (list []int64) {
	f := field(w, "list")
	for i := range f.Len() {
		list = append(list, f.Index(i).FieldByName(name).Int())
	}
	return list
}

// fast is a leaky bucket that admits all that a test asks for.
var fast = limit.Must(limit.TokenBucket("fast", 1_000_000, time.Second, 1_000_000))
