package redisrate

import (
	"testing"
	"time"
)

// A program may make any number of limits: a bounded number is kept, and those that were dropped go on counting.
func TestRulesAreBounded(t *testing.T) {
	l := alone(t)
	first := PerHour(5)
	take(t, l, "k", first, 5)
	for i := range 3 * maxRules {
		if res := take(t, l, "k", Limit{1 + i, 1, 10 * time.Hour}, 1); res.Allowed != 1 {
			t.Fatalf("%d: %+v", i, res)
		}
		if n := len(l.rules.of); n > maxRules {
			t.Fatalf("%d rules", n)
		}
	}
	if n := len(l.rules.of); n != maxRules {
		t.Errorf("%d rules, want %d", n, maxRules)
	}
	delete(l.rules.of, first)
	if res := take(t, l, "k", first, 1); res.Allowed != 0 {
		t.Errorf("a rule that was built anew has forgotten: %+v", res)
	}
}

// The rule of a limit is built once.
func TestRuleIsKept(t *testing.T) {
	var r rules
	a, err := r.get(PerMinute(10))
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.get(Limit{Rate: 10, Burst: 10, Period: time.Minute})
	if err != nil || a != b {
		t.Errorf("%p, %p, %v", a, b, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = r.get(PerMinute(10)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
