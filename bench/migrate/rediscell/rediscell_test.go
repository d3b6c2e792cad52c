package rediscell

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/bench/internal/bubble"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// What docs/migrate/redis-cell.md says is equal. The module itself is not here: the numbers
// are those of its README. CL.THROTTLE of hybridlimit serve is tested by the table in its own tests.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

func TestDocumentedExample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := limit.Must(remote.New(bubble.Client(t, bubble.Start(t), 0), remote.Options{}))
		res, err := lim.Take(t.Context(), "user123", perUser, 1)
		if got := five(res); err != nil || got != [5]int64{0, 16, 15, -1, 2} {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// cell answers CL.THROTTLE as is documented, see TestDocumentedExample.
type cell struct{ lim *remote.Limiter }

func (c cell) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "cl.throttle" {
			return next(ctx, cmd)
		}
		if args := fmt.Sprint(cmd.Args()...); args != "CL.THROTTLEapi:alice15 30 60 1" {
			return errors.New(args)
		}
		res, err := c.lim.Take(ctx, "alice", limit.Must(limit.TokenBucket("cell", 30, time.Minute, 16)), 1)
		numbers := five(res)
		cmd.(*redis.Cmd).SetVal([]any{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]})
		return err
	}
}

func (cell) DialHook(next redis.DialHook) redis.DialHook { return next }

func (cell) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := bubble.Client(t, bubble.Start(t), 0)
		lim := limit.Must(remote.New(rdb, remote.Options{}))
		rdb.AddHook(cell{lim})
		for i := range 18 {
			a, wait, err := before(t.Context(), rdb, "alice")
			b, waitAfter, errAfter := after(t.Context(), lim, "alice")
			if err := errors.Join(err, errAfter); err != nil || a != b || a != (i < 16) || wait != waitAfter || (wait == 2) == a {
				t.Errorf("%d: %t, %ds; %t, %ds; %v", i, a, wait, b, waitAfter, err)
			}
		}
	})
}
