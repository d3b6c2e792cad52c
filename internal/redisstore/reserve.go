package redisstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Reservation is the answer to [Limiter.Reserve]. The zero Reservation is not OK. It
// is safe for concurrent use and must not be copied.
type Reservation struct {
	l     *Limiter
	key   string
	rule  *limit.Rule
	ok    bool
	delay time.Duration

	held  int64 // units to hand back
	at    []any // since when they count, see refund.lua
	spent atomic.Bool
}

// OK tells whether the units are the caller's, after Delay.
func (r *Reservation) OK() bool { return r != nil && r.ok }

// Delay returns how long after the call of Reserve the units may be used; it
// does not count down. If there are none: the shortest time after which asking
// again may help, or [limit.Never].
func (r *Reservation) Delay() time.Duration {
	if r == nil || !r.ok && r.delay == 0 {
		return limit.Never
	}
	return r.delay
}

// Cancel hands the units back, see Reservation of package remote.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r == nil || r.held == 0 || r.spent.Load() {
		return nil
	}
	if err := given(ctx).Err(); err != nil {
		return wrap(err)
	}
	if !r.spent.CompareAndSwap(false, true) {
		return nil
	}
	_, err := r.l.refund(ctx, r.key, r.rule, r.held, r.at...)
	return err
}

// Reserve is Reserve of package remote.
func (l *Limiter) Reserve(ctx context.Context, key string, rule *limit.Rule, n int64) (*Reservation, error) {
	return l.reserve(ctx, key, rule, n, limit.MaxWindow)
}

// reserve is Reserve for those who can wait for most at the longest: what would
// take longer is not booked.
func (l *Limiter) reserve(ctx context.Context, key string, rule *limit.Rule, n int64, most time.Duration) (*Reservation, error) {
	if err := askable(rule, n); err != nil {
		return nil, err
	}
	res := &Reservation{l: l, key: key, rule: rule}
	if n > rule.Limit() && !rule.IsDryRun() {
		res.delay = limit.Never
		return res, nil
	}
	a := l.srv.sumUp([]limit.Check{{Key: key, Rule: rule, N: n}})
	if !rule.IsDryRun() {
		a.asked[0].ahead = min(most, limit.MaxWindow)
	}
	c := a.call()
	l.srv.do(ctx, c)
	if c.err != nil {
		return nil, wrap(c.err)
	}
	if err := res.read(a, newReader(c.val)); err != nil {
		return nil, err
	}
	return res, nil
}

// askable tells why a question cannot be asked.
func askable(rule *limit.Rule, n int64) error {
	switch {
	case !rule.Valid():
		return fmt.Errorf("remote: %w", limit.ErrNilRule)
	case n < 0:
		return fmt.Errorf("remote: %w: %d", limit.ErrInvalidN, n)
	case letter(rule.Algorithm()) == '?':
		return fmt.Errorf("remote: %w: %v", limit.ErrUnsupported, rule)
	}
	return nil
}

// read takes over the reply to the one question of a.
func (r *Reservation) read(a *all, reply *reader) error {
	if _, err := a.blamed(reply); err != nil {
		return err
	}
	reply.flag() // the next one says more of a dry run
	now := reply.number(maxExact)
	fits, n := reply.flag() && !a.never(0), a.asked[0].own
	if r.rule.Algorithm() == limit.AlgorithmFunnel {
		level := reply.span(r.rule)
		until := toWire(r.rule, level)
		r.at = []any{now, min(now+until.us, maxExact), until.rem}
		if !fits {
			level = arithOf(r.rule).Add(level, arithOf(r.rule).Cost(n))
		}
		r.delay = arithOf(r.rule).Sub(level, arithOf(r.rule).Full).Ceil()
	} else {
		tell := reply.content(r.rule).tell
		r.at, r.delay = []any{now}, tell(fits, n).RetryAfter
	}
	r.ok = fits || r.rule.IsDryRun()
	if fits {
		r.held = n
	} else if r.ok {
		r.delay = 0
	}
	return reply.end()
}
