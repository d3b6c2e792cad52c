package remote

import (
	"math"
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A dry run answers what the rule itself would, lets it pass, and consumes only
// what fits. Both count the same key. Of Take it is shown by TestTakeAllAgainstModels.
func TestDryRun(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, r *limit.Rule) {
		for _, step := range []struct {
			n, remaining int64
			would        bool
		}{{0, 10, false}, {7, 3, false}, {5, 3, true}, {math.MaxInt64, 3, true}, {3, 0, false}, {1, 0, true}} {
			granted, res, err := l.TakeAtMost(ctx, "k", r.DryRun(), step.n)
			if err != nil || granted != step.n || !res.Allowed || res.WouldRefuse != step.would || res.Remaining != step.remaining {
				t.Fatalf("%d: %d granted, %+v, %v, want %+v", step.n, granted, res, err, step)
			}
			real := take(t, l, "k", r, max(step.n, 11)) // what never fits takes nothing
			if (step.n > 10) != (res.RetryAfter == limit.Never) || real.Remaining != step.remaining {
				t.Fatalf("%d: %s, for real %s", step.n, show(res), show(real))
			}
			peek, err := l.Peek(ctx, "k", r.DryRun())
			if err != nil || !peek.Allowed || peek.WouldRefuse != (step.remaining == 0) || peek.Remaining != step.remaining {
				t.Fatalf("a peek after %d: %s, %v", step.n, show(peek), err)
			}
		}
		if err := l.WaitN(ctx, "k", r.DryRun(), 4); err != nil || remains(t, l, "k", r) != 0 {
			t.Errorf("a wait: %v", err)
		}
	})
}
