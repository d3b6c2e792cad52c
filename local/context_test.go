package local

import (
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The form with contexts counts in the same keys, and reports what is invalid.
func TestWithContext(t *testing.T) {
	l := newLimiter(t, Options{})
	c, ctx := limit.WithContext(l), t.Context()
	rule := limit.Must(limit.FixedWindow("r", 10, 24*time.Hour))
	if res, err := c.Take(ctx, "k", rule, 4); err != nil || !res.Allowed || res.Remaining != 6 {
		t.Errorf("%+v, %v", res, err)
	}
	if v, err := c.TakeAll(ctx, limit.Check{Key: "k", Rule: rule}, limit.Check{Key: "k2", Rule: rule}); err != nil || !v.Allowed {
		t.Errorf("%+v, %v", v, err)
	}
	if back, err := c.Refund(ctx, "k", rule, 2); err != nil || back != 2 || l.Peek("k", rule).Remaining != 7 {
		t.Errorf("%d, %v", back, err)
	}
	if err := c.Set(ctx, "k", rule, 9); err != nil {
		t.Error(err)
	}
	if res, err := c.Peek(ctx, "k", rule); err != nil || res.Remaining != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	if err := c.WaitN(ctx, "k", rule, 11); !errors.Is(err, limit.ErrTooMany) {
		t.Error(err)
	}
	if _, err := c.Take(ctx, "k", rule, -1); !errors.Is(err, limit.ErrInvalidN) {
		t.Error(err)
	}
	if _, err := c.Peek(ctx, "k", nil); !errors.Is(err, limit.ErrNilRule) {
		t.Error(err)
	}
	if back, err := c.Refund(ctx, "never used", rule, 1); back != 0 || err != nil {
		t.Errorf("%d, %v", back, err)
	}
	other := limit.Must(limit.FixedWindow("r", 10, time.Hour)) // of the same name
	if v, err := c.TakeAll(ctx, limit.Check{Key: "k", Rule: rule}, limit.Check{Key: "k", Rule: other}); !errors.Is(err, limit.ErrUnsupported) || v.Allowed {
		t.Errorf("%+v, %v", v, err)
	}
	if limit.WithContext((*Limiter)(nil)) != nil {
		t.Error("a limiter that is not there")
	}
}
