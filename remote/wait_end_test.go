package remote

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// endHook ends a context between the execution of a command and the reading of
// its reply, which whoever asked with that context does not get any more.
type endHook struct{ end context.CancelFunc }

func (endHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h endHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(context.WithoutCancel(ctx), cmd)
		h.end()
		if ctx.Err() != nil {
			cmd.(interface{ SetVal(any) }).SetVal(nil)
			return ctx.Err()
		}
		return err
	}
}
func (endHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Whose context ends while the booking is under way keeps nothing.
func TestWaitEndsUnderWay(t *testing.T) {
	b := onMini(t)
	l, rule := b.limiter(), funnel(t, 10, 1, time.Second)
	take(t, l, "k", rule, 4)
	reserve(t, l, "other", rule, 1, true, 0) // now Redis has the script
	for _, n := range []int64{3, 9} {        // at once, and in line
		mortal, end := context.WithCancel(ctx)
		hurried := &backend{t: t, rdb: dial(t, b.addr)}
		hurried.rdb.AddHook(endHook{end})
		if err := hurried.limiter().WaitN(mortal, "k", rule, n); !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v", n, err)
		}
		if got := take(t, l, "k", rule, 7).RetryAfter; got != time.Second {
			t.Errorf("%d: 7 units after %v, want 1 s", n, got)
		}
	}
}

// When the booking fails as well, both errors are told.
func TestWaitEndsAndFails(t *testing.T) {
	b := onMini(t)
	mortal, end := context.WithCancel(ctx)
	b.rdb.AddHook(endHook{end})
	b.mini.SetError("LOADING this is a test")
	err := b.limiter().Wait(mortal, "k", funnel(t, 10, 1, time.Second))
	if _, reason := Classify(err); !errors.Is(err, context.Canceled) || reason != "loading" {
		t.Errorf("%v", err)
	}
}
