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
// are those of its README, and of the table in its own tests.

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

// A max_burst of 4, one a second.
func TestTableOfItsTests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := limit.Must(remote.New(bubble.Client(t, bubble.Start(t), 0), remote.Options{}))
		rule, start := limit.Must(limit.TokenBucket("foo", 1, time.Second, 5)), time.Now()
		const ms, s, never = time.Millisecond, time.Second, limit.Never
		for i, c := range []struct {
			at        time.Duration
			quantity  int64
			remaining int64
			reset     time.Duration
			retry     time.Duration // 0: admitted; redis-cell says -1, for never as well
		}{
			{0, 6, 5, 0, never},
			{0, 1, 4, 1 * s, 0},
			{0, 1, 3, 2 * s, 0},
			{0, 1, 2, 3 * s, 0},
			{0, 1, 1, 4 * s, 0},
			{0, 1, 0, 5 * s, 0},
			{0, 1, 0, 5 * s, 1 * s},
			{3000 * ms, 1, 2, 3000 * ms, 0},
			{3100 * ms, 1, 1, 3900 * ms, 0},
			{4000 * ms, 1, 1, 4000 * ms, 0},
			{8000 * ms, 1, 4, 1000 * ms, 0},
			{9500 * ms, 1, 4, 1000 * ms, 0},
			{9500 * ms, 0, 4, 1 * s, 0},
			{9500 * ms, 2, 2, 3 * s, 0},
			{9500 * ms, 5, 2, 3 * s, 3 * s},
		} {
			time.Sleep(time.Until(start.Add(c.at)))
			res, err := lim.Take(t.Context(), "foo", rule, c.quantity)
			if err != nil || res.Allowed != (c.retry == 0) || res.Limit != 5 || res.Remaining != c.remaining || res.ResetAfter != c.reset || res.RetryAfter != c.retry {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
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
