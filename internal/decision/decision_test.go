package decision

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAllResult(t *testing.T) {
	rule := limit.Must(limit.FixedWindow("x", 10, time.Second))
	yes := func(left int64) limit.Result { return limit.Result{Allowed: true, Limit: 10, Remaining: left} }
	no := func(wait time.Duration) limit.Result { return limit.Result{Limit: 10, RetryAfter: wait} }
	dry := func(left int64) limit.Result {
		return limit.Result{Allowed: true, WouldRefuse: true, Limit: 10, Remaining: left, RetryAfter: 1}
	}
	for _, c := range []struct {
		name    string
		answers []limit.Result
		allowed bool
		by      int
	}{
		{"none", nil, true, -1},
		{"the fewest remaining", []limit.Result{yes(3), yes(1), yes(2)}, true, 1},
		{"the first of equals", []limit.Result{yes(3), yes(3)}, true, 0},
		{"one refuses", []limit.Result{yes(0), no(5), yes(0)}, false, 1},
		{"the longest wait", []limit.Result{no(5), no(9), no(7), yes(0)}, false, 1},
		{"for ever", []limit.Result{no(5), no(limit.Never)}, false, 1},
		{"a dry run", []limit.Result{yes(0), dry(5), yes(0)}, true, 1},
		{"a dry run beside a refusal", []limit.Result{dry(0), no(1), dry(0)}, false, 1},
		{"two dry runs", []limit.Result{dry(4), yes(0), dry(2)}, true, 2},
	} {
		v := None()
		for i, a := range c.answers {
			Add(&v, i, rule, a)
		}
		if v.Allowed != c.allowed || v.By != c.by || (v.Rule == rule) != (c.by >= 0) {
			t.Errorf("%s: %+v", c.name, v)
		}
		if c.by >= 0 && v.Result != c.answers[c.by] {
			t.Errorf("%s: %+v is not the answer to check %d", c.name, v.Result, c.by)
		}
	}
}

func TestMistaken(t *testing.T) {
	a, b := limit.Must(limit.FixedWindow("a", 1, time.Second)), limit.Must(limit.FixedWindow("a", 1, time.Minute))
	other, large := limit.Must(limit.SlidingWindow("a", 1, time.Second)), limit.Must(limit.FixedWindow("a", 5, time.Second))
	ask := func(key string, rule *limit.Rule) limit.Check { return limit.Check{Key: key, Rule: rule, N: 1} }
	for _, c := range []struct {
		checks []limit.Check
		want   int
	}{
		{nil, -1}, {[]limit.Check{ask("k", a)}, -1}, {[]limit.Check{ask("k", a), ask("k", a), ask("k", large), ask("k", a.DryRun())}, -1},
		{[]limit.Check{ask("k", a), ask("l", b), ask("k", other)}, -1}, {[]limit.Check{ask("k", a), ask("l", a), ask("k", b)}, 2},
	} {
		if got := Mistaken(c.checks); got != c.want {
			t.Errorf("%v: %d, want %d", c.checks, got, c.want)
		}
	}
}
