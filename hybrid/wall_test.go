package hybrid_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// wallClock is monotonic as the system's, beside a wall clock that can be set. At the start that was wrong.
type wallClock struct {
	clock.System
	wrong time.Duration
	ahead atomic.Int64
}

func (c *wallClock) Now() time.Duration { return c.System.Now() + c.wrong }

func (c *wallClock) Ahead() time.Duration { return c.System.Ahead() + time.Duration(c.ahead.Load()) }

// jump sets the wall clock, and waits for as long as that may remain unseen.
func (c *wallClock) jump(d time.Duration) {
	c.ahead.Add(int64(d))
	time.Sleep(1100 * time.Millisecond) // of the bubble
	synctest.Wait()
}

// quotaIn returns a quota of ten for a day that ends after d.
func quotaIn(d time.Duration) *limit.Rule { return dayFrom(time.Now().Add(d)) }

// Without Redis a day begins at midnight by the wall clock, which is set after the start.
//
// Fault 35: the wall clock is set, or the machine was suspended.
func TestWallClockWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hands := new(wallClock)
		l := newLimiter(t, nil, hybrid.Options{Clock: hands})
		rule := quotaIn(time.Hour)
		wantAdmitted(t, l, "k", rule, 12, 10)
		hands.jump(time.Hour)
		wantAdmitted(t, l, "k", rule, 12, 10)
		hands.jump(-2 * time.Hour)
		wantAdmitted(t, l, "k", rule, 12, 0)
		if left := l.Peek("k", rule).RetryAfter; left < 2*time.Hour-time.Minute || left > 2*time.Hour {
			t.Errorf("a new day begins in %v", left)
		}
	})
}

// As long as Redis was never reached, the wall clock stands for its clock. What was admitted before it was set
// is as old as it was, and Redis hears of it.
//
// Fault 35: the wall clock is set while a node starts in an outage.
func TestWallClockBeforeTheFirstAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		hands, net := &wallClock{wrong: -100 * time.Hour}, new(network) // as of a machine without a battery
		net.down()
		n := w.node(hybrid.Options{Clock: hands, Fallback: hybrid.FullLimit}, net)
		time.Sleep(5 * time.Second)
		rule := quotaIn(time.Minute) // for the node it is four days and four hours later
		wantAdmitted(t, n.Limiter, "k", rule, 4, 4)
		hands.jump(100 * time.Hour)
		wantAdmitted(t, n.Limiter, "k", rule, 3, 3)
		left := n.Peek("k", rule).ResetAfter
		if left < 50*time.Second || left > time.Minute {
			t.Errorf("a new day begins in %v", left)
		}
		net.up()
		time.Sleep(10 * time.Second)
		wantMode(t, n.Limiter, hybrid.Synced)
		w.wantUsed("k", rule, 7)
		time.Sleep(time.Minute)
		wantAdmitted(t, n.Limiter, "k", rule, 12, 10)
		time.Sleep(2 * time.Second)
		conserved(t, n.Limiter, true)
	})
}
