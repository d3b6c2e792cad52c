package hybrid_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// lying starts a limiter whose Redis answers batches with what lie makes of the
// honest answer, until honest is called. Only one goroutine calls lie at a time.
func lying(t *testing.T, lie func(reply string) string) (l *hybrid.Limiter, honest func()) {
	f := newForger(func() byte { return 0 })
	f.honest = true
	on := true
	rdb := redis.NewClient(clientOptions("127.0.0.1:6379"))
	t.Cleanup(func() { rdb.Close() })
	rdb.AddHook(batchLiar(func(reply string) string {
		f.mu.Lock()
		defer f.mu.Unlock()
		if on {
			return lie(reply)
		}
		return reply
	}))
	rdb.AddHook(f) // asked by the one above, and asks nobody
	return newLimiter(t, rdb, hybrid.Options{}), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		on = false
	}
}

// batchLiar is a hook that changes the answers to batches.
type batchLiar func(reply string) string

func (batchLiar) DialHook(next redis.DialHook) redis.DialHook { return next }
func (b batchLiar) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		b.change(cmd)
		return err
	}
}
func (b batchLiar) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			b.change(cmd)
		}
		return err
	}
}

func (b batchLiar) change(cmd redis.Cmder) {
	if c, ok := cmd.(interface {
		SetVal(any)
		Val() any
	}); ok {
		if reply, ok := c.Val().(string); ok { // batches alone are answered with a text
			c.SetVal(b(reply))
		}
	}
}

// instead returns a reply to a batch with another fate, and no states.
func instead(fate, reply string) string {
	return fate + " " + strings.Fields(reply)[1] + " 0"
}

// A Redis that has lost everything whenever it is asked is not asked without
// pause, and what was reported to it is reported again to the one that follows.
func TestHostileLossWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		l, honest := lying(t, func(reply string) string {
			if asked.Add(1) > 10_000 {
				return reply // rather than never coming to an end
			}
			return instead("l", reply)
		})
		wantAdmitted(t, l, "k", longTen, 3, 3)
		time.Sleep(10 * time.Second)
		if n := asked.Load(); n < 10 || n > 1000 {
			t.Errorf("asked %d times in 10 s", n)
		}
		honest()
		time.Sleep(10 * time.Second)
		flush(t, l)
		conserved(t, l, true)
	})
}

// A Redis that calls every batch an old one does not use up the numbers of
// batches: an honest one is reported again.
func TestHostileStaleWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		l, honest := lying(t, func(reply string) string {
			asked.Add(1)
			return instead("s", reply)
		})
		wantAdmitted(t, l, "k", longTen, 3, 3)
		for range 20 {
			wantAdmitted(t, l, "k", longWindow, 3, 3)
			time.Sleep(time.Second)
		}
		if n := asked.Load(); n < 100 {
			t.Errorf("asked %d times in 20 s", n)
		}
		honest()
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		if err := l.Flush(ctx); err != nil {
			t.Errorf("flush: %v (%+v)", err, l.Stats())
		}
		conserved(t, l, true)
	})
}

// A level beyond the end of Redis' time cannot be reported to Redis again. It is
// not tried for ever.
func TestHostileLevelBeyondTheEndOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := limit.Must(limit.Funnel("slow", 10, 10, 24*time.Hour))
		l, honest := lying(t, func(reply string) string {
			if words := strings.Fields(reply); words[0] == "a" && len(words) == 8 {
				return strings.Replace(reply, words[6], "9007199254740991", 1)
			}
			return reply
		})
		wantAdmitted(t, l, "k", rule, 1, 1)
		time.Sleep(time.Second)
		wantAdmitted(t, l, "k", rule, 1, 0)
		honest()
		time.Sleep(time.Second)
		flush(t, l)
		time.Sleep(10 * time.Second)
		before := l.Stats()
		time.Sleep(10 * time.Second)
		after := l.Stats()
		if after.RolledBackKeys != before.RolledBackKeys || after.RolledBackKeys == 0 {
			t.Errorf("%d keys rolled back, then %d", before.RolledBackKeys, after.RolledBackKeys)
		}
		wantAdmitted(t, l, "k", rule, 1, 0)
	})
}
