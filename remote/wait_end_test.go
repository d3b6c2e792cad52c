package remote

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// endsWith ends a context between the execution of a command and the reading of
// its reply, which whoever asked with that context does not get any more.
func endsWith(end context.CancelFunc) redis.Hook {
	return redistest.Alone(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(context.WithoutCancel(ctx), cmd)
		end()
		if ctx.Err() != nil {
			cmd.(interface{ SetVal(any) }).SetVal(nil)
			return ctx.Err()
		}
		return err
	})
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
		hurried.rdb.AddHook(endsWith(end))
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
	b.rdb.AddHook(endsWith(end))
	b.mini.SetError("LOADING this is a test")
	err := b.limiter().Wait(mortal, "k", funnel(t, 10, 1, time.Second))
	if _, reason := Classify(err); !errors.Is(err, context.Canceled) || reason != "loading" {
		t.Errorf("%v", err)
	}
}
