package hybrid_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// withContext is what code asks for that works with a limiter of this package and with one
// of remote.
type withContext interface {
	Take(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error)
	TakeAll(ctx context.Context, checks ...limit.Check) (limit.AllResult, error)
	Peek(ctx context.Context, key string, rule *limit.Rule) (limit.Result, error)
	Refund(ctx context.Context, key string, rule *limit.Rule, n int64) (back int64, err error)
	Charge(ctx context.Context, key string, rule *limit.Rule, n int64) (charged int64, err error)
	WaitN(ctx context.Context, key string, rule *limit.Rule, n int64) error
	Set(ctx context.Context, key string, rule *limit.Rule, used int64) error
}

var (
	_ withContext = (*limit.InContext)(nil)
	_ withContext = (*remote.Limiter)(nil)
)

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
	for name, l := range map[string]withContext{"remote": r, "hybrid": limit.WithContext(h)} {
		if err := l.Set(ctx, name, rule, 3); err != nil {
			t.Errorf("%s: Set: %v", name, err)
		}
		if res, err := l.Take(ctx, name, rule, 2); err != nil || !res.Allowed || res.Remaining != 5 {
			t.Errorf("%s: Take: %+v, %v", name, res, err)
		}
		if v, err := l.TakeAll(ctx, limit.Check{Key: name, Rule: rule}, limit.Check{Key: name + "2", Rule: rule, N: 10}); err != nil || !v.Allowed || v.By != 1 {
			t.Errorf("%s: TakeAll: %+v, %v", name, v, err)
		}
		if back, err := l.Refund(ctx, name, rule, 2); err != nil || back != 2 {
			t.Errorf("%s: Refund: %d, %v", name, back, err)
		}
		if n, err := l.Charge(ctx, name, rule, 1); err != nil || n != 1 {
			t.Errorf("%s: Charge: %d, %v", name, n, err)
		}
		if res, err := l.Peek(ctx, name, rule); err != nil || res.Remaining != 5 {
			t.Errorf("%s: Peek: %+v, %v", name, res, err)
		}
		if err := l.WaitN(ctx, name, rule, 1); err != nil {
			t.Errorf("%s: WaitN: %v", name, err)
		}
		wrong := map[string]error{}
		_, wrong["Take -1"] = l.Take(ctx, name, rule, -1)
		_, wrong["TakeAll -1"] = l.TakeAll(ctx, limit.Check{Key: name, Rule: rule, N: -1})
		_, wrong["Refund -1"] = l.Refund(ctx, name, rule, -1)
		_, wrong["Charge -1"] = l.Charge(ctx, name, rule, -1)
		wrong["Set -1"], wrong["WaitN -1"] = l.Set(ctx, name, rule, -1), l.WaitN(ctx, name, rule, -1)
		for what, err := range wrong {
			if !errors.Is(err, limit.ErrInvalidN) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		clear(wrong)
		_, wrong["Take"] = l.Take(ctx, name, nil, 1)
		_, wrong["TakeAll"] = l.TakeAll(ctx, limit.Check{Key: name})
		_, wrong["Peek"] = l.Peek(ctx, name, nil)
		_, wrong["Refund"] = l.Refund(ctx, name, nil, 1)
		_, wrong["Charge"] = l.Charge(ctx, name, nil, 1)
		wrong["Set"], wrong["WaitN"] = l.Set(ctx, name, nil, 1), l.WaitN(ctx, name, nil, 1)
		for what, err := range wrong {
			if !errors.Is(err, limit.ErrNilRule) {
				t.Errorf("%s: %s without a rule: %v", name, what, err)
			}
		}
		if v, err := l.TakeAll(ctx, limit.Check{Key: name, Rule: rule}, limit.Check{Key: name, Rule: other}); !errors.Is(err, limit.ErrUnsupported) || v.Allowed {
			t.Errorf("%s: two rules of one counter: %+v, %v", name, v, err)
		}
	}
	if limit.WithContext((*hybrid.Limiter)(nil)) != nil {
		t.Error("a limiter that is not there")
	}
	log := limit.Must(limit.SlidingLog("log", 5, time.Minute)) // hybrid has none
	c := limit.WithContext(h)
	if _, err := c.Take(ctx, "k", log, 1); !errors.Is(err, limit.ErrUnsupported) || !errors.Is(c.CheckRule(log), limit.ErrUnsupported) {
		t.Error(err)
	}
	was := h.Stats().Invalid
	if c.CountInvalid(rule); h.Stats().Invalid != was+1 {
		t.Errorf("%d invalid checks, want %d", h.Stats().Invalid, was+1)
	}
	c.CountExempt("r")
	c.CountExempt("")
	(*hybrid.Limiter)(nil).CountExempt("r")
	st := h.Stats()
	if i := slices.IndexFunc(st.Rules, func(r hybrid.RuleStats) bool { return r.Name == "r" }); st.Exempt != 2 || i < 0 || st.Rules[i].Exempt != 1 {
		t.Errorf("%d exempt checks, %+v", st.Exempt, st.Rules)
	}
}
