package limit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A rule that is exact counts as the rule that it comes from, and says what it is.
func TestExactRule(t *testing.T) {
	r := limit.Must(limit.SlidingWindow("api", 10, time.Minute))
	e := r.Exact()
	if r.IsExact() || !e.IsExact() || !e.Valid() || e.Name() != r.Name() || e.Limit() != 10 || e.IsDryRun() {
		t.Errorf("%v of %v", e, r)
	}
	if d := e.DryRun(); !d.IsExact() || !d.IsDryRun() || !r.DryRun().Exact().IsDryRun() {
		t.Errorf("%v", d)
	}
	if text := e.String(); text != r.String()+" (exact)" || strings.Contains(r.String(), "exact") {
		t.Errorf("%q of %q", text, r)
	}
	if none := (*limit.Rule)(nil); none.IsExact() || none.Exact() != nil || new(limit.Rule).Exact() != nil || none.DryRun() != nil || new(limit.Rule).DryRun() != nil {
		t.Error("an invalid rule is exact, or a dry run")
	}
	all := limit.Must(limit.Combine("all", limit.Must(limit.FixedWindow("day", 10, time.Hour)), e))
	if !all.IsExact() || strings.Count(all.String(), "exact") != 1 {
		t.Errorf("%v", all)
	}
}

// recorder says which of its methods has decided, by the limit of its answer.
type recorder struct{ byMemory, byRedis int64 }

var errAsked = errors.New("asked")

func (r *recorder) Take(string, *limit.Rule, int64) limit.Result {
	r.byMemory++
	return limit.Result{Allowed: true}
}

func (r *recorder) TakeAll(...limit.Check) limit.AllResult {
	r.byMemory++
	return limit.AllResult{Result: limit.Result{Allowed: true}, By: -1}
}
func (*recorder) Peek(string, *limit.Rule) limit.Result { return limit.Result{Allowed: true} }
func (*recorder) Refund(string, *limit.Rule, int64) int64 {
	return 0
}

func (*recorder) WaitN(context.Context, string, *limit.Rule, int64) error { return nil }

// exactRecorder can let Redis decide.
type exactRecorder struct{ recorder }

func (r *exactRecorder) TakeExact(context.Context, ...limit.Check) (limit.AllResult, error) {
	r.byRedis++
	return limit.AllResult{By: -1}, errAsked
}

// With a context an exact rule is decided by Redis, if the limiter can; also if only one of several
// checks has one. Other rules, and other limiters, decide from memory.
func TestExactInContext(t *testing.T) {
	r := limit.Must(limit.SlidingWindow("api", 10, time.Minute))
	other := limit.Must(limit.SlidingWindow("other", 10, time.Minute))
	both, plain := &exactRecorder{}, &recorder{}
	c, ctx := limit.WithContext(both), context.Background()
	for _, rule := range []*limit.Rule{r, r.Exact()} {
		want := error(nil)
		if rule.IsExact() {
			want = errAsked
		}
		if _, err := c.Take(ctx, "k", rule, 1); !errors.Is(err, want) {
			t.Errorf("%v: %v", rule, err)
		}
		if _, err := c.TakeAll(ctx, limit.Check{Key: "k", Rule: other}, limit.Check{Key: "k", Rule: rule}); !errors.Is(err, want) {
			t.Errorf("%v: %v", rule, err)
		}
		p := limit.WithContext(plain)
		if res, err := p.Take(ctx, "k", rule, 1); err != nil || !res.Allowed {
			t.Errorf("%v: %+v, %v", rule, res, err)
		}
		if v, err := p.TakeAll(ctx, limit.Check{Key: "k", Rule: rule}); err != nil || !v.Allowed {
			t.Errorf("%v: %+v, %v", rule, v, err)
		}
	}
	if res, err := c.Take(ctx, "k", r.Exact(), 0); err != nil || !res.Allowed { // a check without units asks for nothing
		t.Errorf("no units: %+v, %v", res, err)
	}
	if both.byMemory != 3 || both.byRedis != 2 || plain.byMemory != 4 {
		t.Errorf("%+v, %+v", both, plain)
	}
}
