package limit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

func TestDryRun(t *testing.T) {
	rule := Must(Funnel("api", 10, 1, time.Second))
	d := rule.DryRun()
	if !d.IsDryRun() || rule.IsDryRun() || d == rule || !arith.Of(d).SameShape(arith.Of(rule)) || d.Limit() != 10 {
		t.Fatalf("%v, %v", d, rule)
	}
	if !strings.Contains(d.String(), "dry run") || strings.Contains(rule.String(), "dry run") {
		t.Errorf("%v, %v", d, rule)
	}
	var none *Rule
	if none.DryRun() != nil || none.IsDryRun() || new(Rule).DryRun() != nil {
		t.Error("a dry run of nothing")
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
