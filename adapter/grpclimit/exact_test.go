package grpclimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// exactly is a limiter in memory that notes what Redis would be asked, and fails as it is told.
type exactly struct {
	*local.Limiter
	fail  error
	asked [][]limit.Check
	ctx   context.Context
}

func (e *exactly) TakeExact(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	v, err := e.TakeAllExact(ctx, limit.Check{Key: key, Rule: rule, N: n})
	return v.Result, err
}

func (e *exactly) TakeAllExact(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	e.asked, e.ctx = append(e.asked, append([]limit.Check(nil), checks...)), ctx
	if err := errors.Join(ctx.Err(), e.fail); err != nil {
		return limit.AllResult{Result: limit.Result{Source: limit.SourceRemote}, By: -1}, err
	}
	return e.TakeAll(checks...), nil
}

// unaryBy makes a call of a server by a rule, without a network.
func unaryBy(t *testing.T, ctx context.Context, lim grpclimit.Limiter, rule *limit.Rule, opts ...grpclimit.Option) error {
	t.Helper()
	intercept, err := grpclimit.UnaryServerInterceptor(lim, rule, grpclimit.Fixed("k"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: sayMethod}, func(context.Context, any) (any, error) { return nil, nil })
	return err
}

type mark struct{}

// An exact rule asks Redis with the context of the call, all limits of it at once if one is exact. What
// Redis has not decided is Unavailable, unless FailOpen.
func TestExact(t *testing.T) {
	and := grpclimit.And(bucket("account", 1).Exact(), grpclimit.Fixed("k"))
	for name, c := range map[string]struct {
		rule  *limit.Rule
		opts  []grpclimit.Option
		asked int // checks of one call
	}{
		"alone":       {bucket("api", 1).Exact(), nil, 1},
		"by plan":     {bucket("api", 1), []grpclimit.Option{grpclimit.Plan(func(context.Context, grpclimit.Call) *limit.Rule { return bucket("api", 1).Exact() })}, 1},
		"beside":      {bucket("address", 9), []grpclimit.Option{and}, 2},
		"several":     {limit.Must(limit.Parse("several", "1/m, 9/h")).Exact(), nil, 1},
		"not exact":   {bucket("api", 1), nil, 0},
		"none of two": {bucket("address", 9), []grpclimit.Option{grpclimit.And(bucket("account", 1), grpclimit.Fixed("k"))}, 0},
	} {
		memory, _ := alone(t)
		exact := &exactly{Limiter: memory, ctx: context.Background()}
		lim := limit.WithContext(exact)
		if err := unaryBy(t, context.WithValue(t.Context(), mark{}, name), lim, c.rule, c.opts...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.asked == 0 {
			if len(exact.asked) != 0 {
				t.Errorf("%s: asked %v", name, exact.asked)
			}
			continue
		}
		if len(exact.asked) != 1 || len(exact.asked[0]) != c.asked || exact.ctx.Value(mark{}) != name {
			t.Errorf("%s: asked %v", name, exact.asked)
		}
		if err := unaryBy(t, t.Context(), lim, c.rule, c.opts...); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s, again: %v", name, err)
		}
		exact.fail = &hybrid.UnavailableError{Reason: "timeout"}
		if err := unaryBy(t, t.Context(), lim, c.rule, c.opts...); status.Code(err) != codes.Unavailable || !errors.Is(err, exact.fail) {
			t.Errorf("%s, away: %v", name, err)
		}
		if err := unaryBy(t, t.Context(), lim, c.rule, append(c.opts, grpclimit.FailOpen())...); err != nil {
			t.Errorf("%s, away, with FailOpen: %v", name, err)
		}
		ended, cancel := context.WithTimeout(t.Context(), -time.Second)
		if err := unaryBy(t, ended, lim, c.rule, append(c.opts, grpclimit.FailOpen())...); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s, too late: %v", name, err)
		}
		cancel()
	}
}

// Two services share an exact limit through Redis.
func TestExactFleet(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	rule := bucket("login", 5).Exact()
	admitted := 0
	for range 5 {
		for _, lim := range h.Limiters { // nobody has told the other one
			switch err := unaryBy(t, t.Context(), limit.WithContext(lim), rule); status.Code(err) {
			case codes.OK:
				admitted++
			case codes.ResourceExhausted:
			default:
				t.Error(err)
			}
		}
	}
	if admitted != 5 {
		t.Errorf("%d of 5 admitted", admitted)
	}
}
