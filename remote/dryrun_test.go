package remote

import (
	"math"
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A dry run answers what the rule itself would, lets it pass, and consumes only
// what fits. Both count the same key.
func TestDryRun(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, r *limit.Rule) {
		dry := r.DryRun()
		if res := take(t, l, "k", dry, 7); !res.Allowed || res.WouldRefuse || res.Remaining != 3 || res.RetryAfter != 0 {
			t.Fatalf("7 of 10: %+v", res)
		}
		for _, n := range []int64{4, 10, 11, math.MaxInt64} {
			real, res := take(t, l, "k", r, n), take(t, l, "k", dry, n)
			if real.Allowed || real.WouldRefuse || real.Remaining != 3 {
				t.Fatalf("%d for real: %+v", n, real)
			}
			if !res.Allowed || !res.WouldRefuse || res.Remaining != 3 || res.Limit != 10 {
				t.Fatalf("%d in a dry run: %+v", n, res)
			}
			if wait := real.RetryAfter - res.RetryAfter; wait < 0 || wait > pace || (n > 10) != (res.RetryAfter == limit.Never) {
				t.Fatalf("%d: a wait of %v, for real it is %v", n, res.RetryAfter, real.RetryAfter)
			}
		}
		if res, err := l.Peek(ctx, "k", dry); err != nil || !res.Allowed || res.WouldRefuse || res.Remaining != 3 {
			t.Errorf("a peek at 3: %+v, %v", res, err)
		}
		take(t, l, "k", r, 3)
		if res, err := l.Peek(ctx, "k", dry); err != nil || !res.Allowed || !res.WouldRefuse || res.RetryAfter <= 0 {
			t.Errorf("a peek at nothing: %+v, %v", res, err)
		}
	})
}

func TestDryRunTakeAtMost(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, r *limit.Rule) {
		for _, step := range []struct {
			n, remaining int64
			would        bool
		}{{0, 10, false}, {7, 3, false}, {5, 3, true}, {math.MaxInt64, 3, true}, {3, 0, false}, {1, 0, true}} {
			granted, res, err := l.TakeAtMost(ctx, "k", r.DryRun(), step.n)
			if err != nil || granted != step.n || !res.Allowed || res.WouldRefuse != step.would || res.Remaining != step.remaining {
				t.Fatalf("%d: %d granted, %+v, %v, want %+v", step.n, granted, res, err, step)
			}
		}
	})
}
