package remote

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// call is a call for n units, and whether it has admitted or counted any.
type call func(l *Limiter, ctx context.Context, key string, r *limit.Rule, n int64) (did bool, err error)

// writes are the calls for n units.
var writes = map[string]call{
	"AllowN": (*Limiter).AllowN,
	"Take": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, n int64) (bool, error) {
		res, err := l.Take(ctx, key, r, n)
		return res.Allowed || res.WouldRefuse, err
	},
	"TakeAtMost": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, n int64) (bool, error) {
		granted, res, err := l.TakeAtMost(ctx, key, r, n)
		return granted != 0 || res.Allowed, err
	},
	"TakeAll": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, n int64) (bool, error) {
		v, err := l.TakeAll(ctx, limit.Check{Key: key, Rule: r, N: n})
		return v.Allowed, err
	},
	"ReserveN": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, n int64) (bool, error) {
		held, err := l.ReserveN(ctx, key, r, n)
		return held.OK(), err
	},
	"WaitN": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, n int64) (bool, error) {
		err := l.WaitN(ctx, key, r, n)
		return err == nil, err
	},
	"Refund": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, n int64) (bool, error) {
		back, err := l.Refund(ctx, key, r, n)
		return back != 0, err
	},
	"Charge": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, n int64) (bool, error) {
		charged, err := l.Charge(ctx, key, r, n)
		return charged != 0, err
	},
	"Set": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, n int64) (bool, error) {
		return false, l.Set(ctx, key, r, n)
	},
}

// others are the calls that are not for a number of units, or for one.
var others = map[string]call{
	"Allow": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, _ int64) (bool, error) {
		return l.Allow(ctx, key, r)
	},
	"Peek": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, _ int64) (bool, error) {
		res, err := l.Peek(ctx, key, r)
		return res.Allowed, err
	},
	"Reset": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, _ int64) (bool, error) {
		return false, l.Reset(ctx, key, r)
	},
	"Reserve": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, _ int64) (bool, error) {
		held, err := l.Reserve(ctx, key, r)
		return held.OK(), err
	},
	"Wait": func(l *Limiter, ctx context.Context, key string, r *limit.Rule, _ int64) (bool, error) {
		err := l.Wait(ctx, key, r)
		return err == nil, err
	},
}

// each makes every call for n units and checks that it fails as wanted and does nothing.
func each(t *testing.T, l *Limiter, calls map[string]call, key string, r *limit.Rule, n int64, want func(error) bool) {
	t.Helper()
	for name, do := range calls {
		if did, err := do(l, ctx, key, r, n); did || !want(err) {
			t.Errorf("%s(%q, %v, %d): %v, %v", name, key, r, n, did, err)
		}
	}
}

// Fault 42: an error, and nothing is written or even sent.
func TestBadQuestions(t *testing.T) {
	b := onMini(t)
	l := b.limiter()
	sent := b.mini.CommandCount()
	for _, r := range []*limit.Rule{nil, new(limit.Rule)} {
		noRule := func(err error) bool { return errors.Is(err, limit.ErrNilRule) }
		each(t, l, writes, "k", r, 1, noRule)
		each(t, l, others, "k", r, 1, noRule)
		if res, _ := l.Take(ctx, "k", r, 1); res.RetryAfter != limit.Never {
			t.Errorf("no rule: %s", show(res))
		}
	}
	for _, r := range callRules(t) {
		for _, n := range []int64{-1, math.MinInt64} {
			noUnits := func(err error) bool { return errors.Is(err, limit.ErrInvalidN) }
			each(t, l, writes, "k", r, n, noUnits)
			each(t, l, writes, "k", r.DryRun(), n, noUnits)
		}
	}
	if n := b.mini.CommandCount() - sent; n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

// A counter that Redis cannot use is an error of every call, of a dry run's as well.
func TestBrokenKeys(t *testing.T) {
	forCallRules(t, func(t *testing.T, b *backend, l *Limiter, r *limit.Rule) {
		for _, rule := range []*limit.Rule{r, r.DryRun()} {
			b.spoil(l, "broken", rule)
			each(t, l, writes, "broken", rule, 1, isKeyError)
			each(t, l, others, "broken", rule, 1, isKeyError)
		}
	})
}

// No context is one that does not end.
func TestNoContext(t *testing.T) {
	b := onMini(t)
	l, s := b.limiter(), b.store()
	var noContext context.Context
	for _, rule := range callRules(t) {
		held := reserve(t, l, "held", rule, 1, true, 0)
		errs := map[string]error{"Cancel": held.Cancel(noContext), "Leave": s.Leave(noContext, "n1", []int{0})}
		for _, calls := range []map[string]call{writes, others} {
			for name, do := range calls {
				_, errs[name] = do(l, noContext, name, rule, 1)
			}
		}
		_, errs["Renew"] = s.Renew(noContext, "k", rule, 1)
		_, errs["Beat"] = s.Beat(noContext, "n1", time.Second, []int{0}, redisstore.BeatOptions{})
		_, errs["Exec"] = s.Exec(noContext, []*redisstore.Batch{{Node: "n1", Seq: 1, Accept: true}}, nil)
		for name, err := range errs {
			if err != nil {
				t.Errorf("%s of %v: %v", name, rule, err)
			}
		}
	}
}
