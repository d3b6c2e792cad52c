package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// close reports what is pending, removes the node from the list of live nodes, and stops every
// goroutine.
func (d *driver) close(ctx context.Context) error {
	d.exact.close()
	err := d.report(ctx)
	close(d.stop)
	// This takes microseconds, because a step does no I/O and calls no foreign code. It does not
	// end with ctx, because a step after this would undo what is set below.
	<-d.stepped
	left := make(chan struct{})
	go func(reported bool) {
		defer close(left)
		if d.listener != nil {
			d.listener.close()
		}
		_ = d.done.Wait() // none of the goroutines returns an error
		d.exact.callers.Wait()
		if reported { // else Redis perhaps cannot be reached
			d.leave(ctx) // after all calls: a heartbeat would enter the node into the list again
		}
	}(err == nil)
	hangs := waitFor(ctx, left, "redis or of OnStateChange")
	d.lim.link.Close()
	d.expire()
	lost := d.pending()
	if !lost {
		err = nil // Redis could not be reached, but there was nothing to report
	}
	if err == nil { // else the report has taken all the time, and perhaps nothing hangs
		err = hangs
	}
	last := State{Mode: Closed, Reason: "closed", Err: err, Since: time.Unix(0, d.lim.now()), Nodes: d.state.Load().Nodes}
	d.state.Store(&last)
	d.lim.link.SetMode(d.fallback.Multiplier(int64(last.Nodes)), true)
	switch n := d.lim.Stats().PendingUnits; {
	case n > 0 && err == nil:
		return fmt.Errorf("hybrid: close: %d admitted units were not reported to redis: their keys are broken there, or they were admitted while closing", n)
	case n > 0:
		return fmt.Errorf("hybrid: close: %d admitted units were not reported to redis: %w", n, err)
	case lost && err != nil:
		return fmt.Errorf("hybrid: close: %d units that were given back were not reported to redis: %w", d.unreportedBack(), err)
	}
	return err
}

// waitFor waits until everything has ended, and returns an error that says what may hang if it has not
// when ctx ends.
func waitFor(ctx context.Context, ended <-chan struct{}, what string) error {
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-ended: // both have ended at once
		return nil
	default:
		return fmt.Errorf("hybrid: close: a call of %s still hangs: %w", what, ctx.Err())
	}
}

// expire drops the units that do not count any more. They are not lost, because the other nodes would
// not count them either.
func (d *driver) expire() {
	now := d.lim.now()
	d.lim.table.Range(func(c *counter.Counter) bool {
		c.Expire(now)
		return true
	})
}

// report reports everything that is pending. While Redis is unreachable and something is
// pending, it tries again until ctx ends.
func (d *driver) report(ctx context.Context) error {
	// If Redis has been away for longer than ctx lasts, it is unlikely to return before the end.
	s := d.state.Load()
	longAway := s.Mode == Degraded && d.lim.now()-s.Since.UnixNano() > int64(decision.TimeLeft(ctx))
	return retry(ctx, func() (again bool, err error) {
		err = d.flush(ctx, reconcile.Flush{})
		var unavailable *UnavailableError
		if !errors.As(err, &unavailable) {
			return false, err
		}
		return mayRecover(unavailable.err) && d.pending() && !longAway, err
	})
}

// leaveFor is for how long Close tries to remove the node from the list of live nodes, besides the time
// of a call. It is short: everything is reported by then, and the node's entry expires by itself.
const leaveFor = 500 * time.Millisecond

// leave removes the node from the list of live nodes. An error is no failure of Close: nothing is lost, and
// the entry of the node expires.
func (d *driver) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveFor+time.Duration(d.machine.Patience()))
	defer cancel()
	_ = retry(ctx, func() (again bool, err error) {
		err = d.store.Leave(ctx, d.machine.Node(), d.machine.Written())
		return mayRecover(err), err
	})
}

// pending reports whether any counter has something to report.
func (d *driver) pending() (any bool) {
	d.lim.table.Range(func(c *counter.Counter) bool {
		any = c.Pending()
		return !any
	})
	return any
}

// unreportedBack returns how many units were given back of which Redis does not know. Nothing is
// reported after it.
func (d *driver) unreportedBack() (n int64) {
	now := d.lim.now()
	d.lim.table.Range(func(c *counter.Counter) bool {
		n += c.UnreportedBack(now)
		return true
	})
	return n
}

// mayRecover reports whether the cause of an error may end by itself. A wrong password or a
// missing permission does not, while a process waits to end.
func mayRecover(err error) bool {
	class, _ := redisstore.Classify(err)
	return class == redisstore.ClassUnavailable
}

// firstPause is the pause before Close tries an unreachable Redis again. Each pause is a
// quarter longer than the one before. So Close notices that Redis has returned after a quarter
// of the time that it was unreachable at most, and 5 s are enough for 15 attempts.
const firstPause = 50 * time.Millisecond

// retry calls try until it says that another attempt is of no use, or ctx ends.
func retry(ctx context.Context, try func() (again bool, err error)) error {
	var last error
	for pause := firstPause; ; pause += pause / 4 {
		again, err := try()
		if err != nil && last != nil && ctx.Err() != nil {
			return gaveUp(ctx, last)
		}
		if !again {
			return err
		}
		last = err
		if decision.Pause(ctx, pause) != nil {
			return gaveUp(ctx, last)
		}
	}
}

// gaveUp returns one error with the reason for the retries and that of the end of ctx.
func gaveUp(ctx context.Context, last error) error { return fmt.Errorf("%w: %w", last, ctx.Err()) }

// Close is [Limiter.Shutdown] with a time of 5 s at most. `defer lim.Close()` ignores its error:
// if a report has failed the limiter also logs how many units Redis does not know. Units that are
// admitted while it closes are in the error alone: end the traffic first.
func (l *Limiter) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), defaultCloseTimeout)
	defer cancel()
	err := l.Shutdown(ctx)
	if errors.Unwrap(err) == nil { // nil, or nothing has failed: see driver.close
		return err
	}
	if n := l.Stats().PendingUnits; n > 0 {
		l.notify.closed(ctx, n, err)
	}
	return err
}

// Shutdown reports what is pending, removes this node from the list of live nodes, and stops
// every goroutine. Waiting calls (see [Limiter.WaitN]) return. Further calls do
// nothing.
//
// While Redis is unreachable Shutdown tries again until ctx ends, unless nothing is pending,
// only an operator can end the failure (a password, a permission), or the limiter has been
// degraded for longer than ctx lasts already. If not everything could
// be reported, Shutdown stops all the same and returns an error that says how many units Redis
// does not know. If nothing was left to report there is no error, whether Redis can be reached or not,
// unless a call or a hook still hangs when ctx ends. A ctx without a deadline gets one of 5 s.
//
// Checks after that are still answered, from memory alone and by the fallback policy.
func (l *Limiter) Shutdown(ctx context.Context) error {
	if l == nil || l.table == nil || !l.closed.CompareAndSwap(false, true) {
		return nil
	}
	ctx = decision.Given(ctx)
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultCloseTimeout)
		defer cancel()
	}
	var err error
	l.queues.Close() // first, so that the units that waiting calls give back are reported
	if l.driver != nil {
		err = l.driver.close(ctx)
	} else {
		l.notify.stop()
		err = waitFor(ctx, l.notify.ended, "OnEvent or of the logger")
	}
	l.table.Close()
	return err
}

// defaultCloseTimeout bounds Close when the context of the caller has no deadline.
const defaultCloseTimeout = 5 * time.Second
