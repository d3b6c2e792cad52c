package limit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestAllResult(t *testing.T) {
	rule := Must(FixedWindow("x", 10, time.Second))
	yes := func(left int64) Result { return Result{Allowed: true, Limit: 10, Remaining: left} }
	no := func(wait time.Duration) Result { return Result{Limit: 10, RetryAfter: wait} }
	dry := func(left int64) Result {
		return Result{Allowed: true, WouldRefuse: true, Limit: 10, Remaining: left, RetryAfter: 1}
	}
	for _, c := range []struct {
		name    string
		answers []Result
		allowed bool
		by      int
	}{
		{"none", nil, true, -1},
		{"the fewest remaining", []Result{yes(3), yes(1), yes(2)}, true, 1},
		{"the first of equals", []Result{yes(3), yes(3)}, true, 0},
		{"one refuses", []Result{yes(0), no(5), yes(0)}, false, 1},
		{"the longest wait", []Result{no(5), no(9), no(7), yes(0)}, false, 1},
		{"for ever", []Result{no(5), no(Never)}, false, 1},
		{"a dry run", []Result{yes(0), dry(5), yes(0)}, true, 1},
		{"a dry run beside a refusal", []Result{dry(0), no(1), dry(0)}, false, 1},
		{"two dry runs", []Result{dry(4), yes(0), dry(2)}, true, 2},
	} {
		v := NewAllResult()
		for i, a := range c.answers {
			v.Add(i, rule, a)
		}
		if v.Allowed != c.allowed || v.By != c.by || (v.Rule == rule) != (c.by >= 0) {
			t.Errorf("%s: %+v", c.name, v)
		}
		if c.by >= 0 && v.Result != c.answers[c.by] {
			t.Errorf("%s: %+v is not the answer to check %d", c.name, v.Result, c.by)
		}
	}
}

func TestDryRun(t *testing.T) {
	rule := Must(Funnel("api", 10, 1, time.Second))
	d := rule.DryRun()
	if !d.IsDryRun() || rule.IsDryRun() || d == rule || !d.SameShape(rule) || d.Hash() != rule.Hash() || d.Limit() != 10 {
		t.Fatalf("%v, %v", d, rule)
	}
	if !strings.Contains(d.String(), "dry run") || strings.Contains(rule.String(), "dry run") {
		t.Errorf("%v, %v", d, rule)
	}
	var none *Rule
	if none.DryRun() != nil || none.IsDryRun() || new(Rule).DryRun() != nil {
		t.Error("a dry run of nothing")
	}
	refusal := Result{Limit: 10, RetryAfter: time.Second}
	if got := d.Judged(refusal); !got.Allowed || !got.WouldRefuse || got.RetryAfter != time.Second {
		t.Errorf("%+v", got)
	}
	if got := rule.Judged(refusal); got != refusal {
		t.Errorf("%+v", got)
	}
	if got := d.Judged(Result{Allowed: true}); got.WouldRefuse {
		t.Errorf("%+v", got)
	}
}

func TestWaitError(t *testing.T) {
	rule := Must(Funnel("api", 10, 1, time.Second))
	late := &WaitError{Key: "k", Rule: rule, N: 3, Need: 2 * time.Second, Left: time.Second}
	if !errors.Is(late, context.DeadlineExceeded) || errors.Is(late, ErrTooMany) {
		t.Error("not a deadline")
	}
	for _, w := range []string{"3 units", `"api"`, `"k"`, "2s", "1s"} {
		if !strings.Contains(late.Error(), w) {
			t.Errorf("%q does not say %s", late, w)
		}
	}
	never := &WaitError{Key: strings.Repeat("x", 1000), Rule: rule, N: 11, Need: Never}
	if errors.Is(never, context.DeadlineExceeded) || !errors.Is(never, ErrTooMany) || len(never.Error()) > 300 {
		t.Errorf("%q", never)
	}
}

func TestMistaken(t *testing.T) {
	a, b := Must(FixedWindow("a", 1, time.Second)), Must(FixedWindow("a", 1, time.Minute))
	other, large := Must(SlidingWindow("a", 1, time.Second)), Must(FixedWindow("a", 5, time.Second))
	for _, c := range []struct {
		checks []Check
		want   int
	}{
		{nil, -1}, {[]Check{{"k", a, 1}}, -1}, {[]Check{{"k", a, 1}, {"k", a, 1}, {"k", large, 1}, {"k", a.DryRun(), 1}}, -1},
		{[]Check{{"k", a, 1}, {"l", b, 1}, {"k", other, 1}}, -1}, {[]Check{{"k", a, 1}, {"l", a, 1}, {"k", b, 1}}, 2},
	} {
		if got := Mistaken(c.checks); got != c.want {
			t.Errorf("%v: %d, want %d", c.checks, got, c.want)
		}
	}
}
