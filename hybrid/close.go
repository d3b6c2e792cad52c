package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
)

// close reports what is pending, leaves, and stops every goroutine.
func (d *driver) close(ctx context.Context) error {
	ctx, cancel := withDefaultDeadline(ctx)
	defer cancel()
	err := d.report(ctx)
	close(d.stop)
	// No step does I/O or calls out, so this is a matter of microseconds. It
	// is not left to ctx: a last step must not undo what is set below.
	<-d.stepped
	stopped := make(chan struct{})
	go func() {
		_ = d.done.Wait() // no goroutine of ours returns an error
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("hybrid: close: a call of redis or of OnStateChange still hangs: %w", ctx.Err()))
	}
	if err == nil {
		// Only now: a heartbeat still under way would enter the node again.
		err = d.leave(ctx)
	}
	d.link.Close()
	last := State{Mode: Closed, Reason: "closed", Err: err, Since: time.Unix(0, d.now()), Nodes: d.state.Load().Nodes}
	d.state.Store(&last)
	d.link.SetMode(d.core.cfg.fallback.multiplier(int64(last.Nodes)), true)
	n := d.stats().PendingUnits
	switch {
	case n <= 0:
		return err
	case err == nil:
		return fmt.Errorf("hybrid: close: %d admitted units were not reported to redis: their keys are broken there, or they were admitted while closing", n)
	}
	return fmt.Errorf("hybrid: close: %d admitted units were not reported to redis: %w", n, err)
}

// report has everything booked that is pending. While ctx lasts it goes on trying,
// unless nothing is left to tell.
func (d *driver) report(ctx context.Context) error {
	return retry(ctx, func() (again bool, err error) {
		err = d.flush(ctx, false)
		var away *UnavailableError
		if !errors.As(err, &away) {
			return false, err
		}
		return mayRecover(away.Err) && d.pending(), err
	})
}

// leave takes the node out of the live ones.
func (d *driver) leave(ctx context.Context) error {
	return retry(ctx, func() (again bool, err error) {
		err = d.store.Leave(ctx, d.core.node, d.core.written())
		return mayRecover(err), err
	})
}

// pending reports whether Redis is still to be told of something.
func (d *driver) pending() (any bool) {
	d.table.Range(func(c *table.Counter) bool {
		any = c.Pending()
		return !any
	})
	return any
}

// mayRecover reports whether an error may go away by itself. A wrong password or
// a missing permission does not while a process waits to end.
func mayRecover(err error) bool {
	class, _ := redisstore.Classify(err)
	return class == redisstore.ClassUnavailable
}

// firstPause is how long Close waits before it asks a Redis that is away again. The
// pauses grow by a quarter each, so that a Redis that returns is asked after at most
// a quarter more than it was away for, and 5 s hold 15 attempts.
const firstPause = 50 * time.Millisecond

// retry calls try until it says that to try again is of no use, or ctx ends.
func retry(ctx context.Context, try func() (again bool, err error)) error {
	var last error
	for pause := firstPause; ; pause += pause / 4 {
		again, err := try()
		if err != nil && last != nil && ctx.Err() != nil {
			return errors.Join(last, err) // why it took so long, and that it was too long
		}
		if !again {
			return err
		}
		last = err
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(last, ctx.Err())
		}
	}
}

// Close reports what is pending, tells the other nodes that this one leaves,
// and stops every goroutine. While Redis cannot be reached it goes on asking for as
// long as ctx lasts, unless nothing is pending or only an operator can mend what is
// wrong (a password, a permission). If ctx ends first, or a
// key there is broken, it stops all the same and returns an error that says
// how many units Redis has not been told of. A ctx without a deadline gets one
// of 5 s. Who is waiting (see [Limiter.Wait]) stops waiting. Further calls do
// nothing.
//
// Checks after Close are still answered, from memory alone and by the
// fallback policy.
func (l *Limiter) Close(ctx context.Context) error {
	if l == nil || l.table == nil || !l.closed.CompareAndSwap(false, true) {
		return nil
	}
	var err error
	l.lines.Close() // what they hand back is still reported
	if l.driver != nil {
		err = l.driver.close(orBackground(ctx))
	} else {
		err = l.endAlone(orBackground(ctx))
	}
	l.table.Close()
	return err
}

// endAlone stops the notifier of a limiter without Redis.
func (l *Limiter) endAlone(ctx context.Context) error {
	ctx, cancel := withDefaultDeadline(ctx)
	defer cancel()
	l.notify.stop()
	select {
	case <-l.alone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hybrid: close: a call of OnEvent or of the logger still hangs: %w", ctx.Err())
	}
}

// withDefaultDeadline bounds what the caller has not bounded.
func withDefaultDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, defaultCloseTimeout)
}

// defaultCloseTimeout bounds the last calls of Redis when the caller's
// context does not.
const defaultCloseTimeout = 5 * time.Second
