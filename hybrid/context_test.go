package hybrid_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

var _ limit.ContextLimiter = (*remote.Limiter)(nil)

// Both forms give the same answers and the same errors, in the same keys.
func TestWithContextIsLikeRemote(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	h, err := hybrid.New(rdb, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	r, err := remote.New(rdb, remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rule, ctx := limit.Must(limit.FixedWindow("r", 10, 24*time.Hour)), t.Context()
	other := limit.Must(limit.FixedWindow("r", 10, time.Hour)) // of the same name
	for name, l := range map[string]limit.ContextLimiter{"remote": r, "hybrid": limit.WithContext(h)} {
		var errs [6]error
		err := l.Set(ctx, name, rule, 3)
		res, err0 := l.Take(ctx, name, rule, 2)
		v, err1 := l.TakeAll(ctx, limit.Check{Key: name, Rule: rule}, limit.Check{Key: name + "2", Rule: rule, N: 10})
		back, err2 := l.Refund(ctx, name, rule, 2)
		charged, err3 := l.Charge(ctx, name, rule, 1)
		peek, err4 := l.Peek(ctx, name, rule)
		if err := errors.Join(err, err0, err1, err2, err3, err4, l.WaitN(ctx, name, rule, 1)); err != nil ||
			!res.Allowed || res.Remaining != 5 || !v.Allowed || v.By != 1 || back != 2 || charged != 1 || peek.Remaining != 5 {
			t.Errorf("%s: %v, Take: %+v, TakeAll: %+v, Refund: %d, Charge: %d, Peek: %+v", name, err, res, v, back, charged, peek)
		}
		for want, q := range map[error]struct {
			rule *limit.Rule
			n    int64
		}{limit.ErrInvalidN: {rule, -1}, limit.ErrNilRule: {nil, 1}} {
			_, errs[0] = l.Take(ctx, name, q.rule, q.n)
			_, errs[1] = l.TakeAll(ctx, limit.Check{Key: name, Rule: q.rule, N: q.n})
			_, errs[2] = l.Refund(ctx, name, q.rule, q.n)
			_, errs[3] = l.Charge(ctx, name, q.rule, q.n)
			errs[4], errs[5] = l.Set(ctx, name, q.rule, q.n), l.WaitN(ctx, name, q.rule, q.n)
			for i, err := range errs {
				if !errors.Is(err, want) {
					t.Errorf("%s: call %d: %v, want %v", name, i, err, want)
				}
			}
		}
		if _, err := l.Peek(ctx, name, nil); !errors.Is(err, limit.ErrNilRule) {
			t.Errorf("%s: Peek without a rule: %v", name, err)
		}
		if v, err := l.TakeAll(ctx, limit.Check{Key: name, Rule: rule}, limit.Check{Key: name, Rule: other}); !errors.Is(err, limit.ErrUnsupported) || v.Allowed {
			t.Errorf("%s: two rules of one counter: %+v, %v", name, v, err)
		}
	}
	if !inside.IsNil(limit.WithContext((*hybrid.Limiter)(nil))) || inside.IsNil(limit.WithContext(h)) {
		t.Error("a limiter that is not there")
	}
	log := limit.Must(limit.SlidingLog("log", 5, time.Minute)) // hybrid has none
	c := limit.WithContext(h)
	if _, err := c.Take(ctx, "k", log, 1); !errors.Is(err, limit.ErrUnsupported) || !errors.Is(inside.CheckRule(c, log), limit.ErrUnsupported) {
		t.Error(err)
	}
	was := h.Figures().Invalid
	if inside.Of(c).CountInvalid(rule); h.Figures().Invalid != was+1 {
		t.Errorf("%d invalid checks, want %d", h.Figures().Invalid, was+1)
	}
	inside.Of(c).CountExempt("r")
	inside.Of(c).CountExempt("")
	(*hybrid.Limiter)(nil).CountExempt("r")
	st := h.Figures()
	if i := slices.IndexFunc(st.Rules, func(r inside.RuleFigures) bool { return r.Name == "r" }); st.Exempt != 2 || i < 0 || st.Rules[i].Exempt != 1 {
		t.Errorf("%d exempt checks, %+v", st.Exempt, st.Rules)
	}
}
