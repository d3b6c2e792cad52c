package xrate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// MaxSkew is by how much a time that a caller gives may differ from the limiter's clock.
const MaxSkew = time.Second

// Base is the limiter that a [Limiter] asks. *hybrid.Limiter and *local.Limiter have these methods, and a
// fake can have them. They must be safe for concurrent use.
type Base interface {
	// AllowN reports whether n units of key were admitted under rule.
	AllowN(key string, rule *limit.Rule, n int64) bool
	// Peek describes where key stands under rule.
	Peek(key string, rule *limit.Rule) limit.Result
	// ReserveN takes n units of key for use after a delay.
	ReserveN(key string, rule *limit.Rule, n int64) limit.Reservation
	// WaitN blocks until n units of key are admitted.
	WaitN(ctx context.Context, key string, rule *limit.Rule, n int64) error
}

// Options says how a [Limiter] is built. The zero Options is usable.
type Options struct {
	// Clock is the clock that the limiter below was made with, if it was given one. nil means [clock.System].
	Clock clock.Clock
}

// Limiter is a token bucket for one key of a limiter of this project, with the methods of a rate.Limiter.
// Build it with [New]. It is safe for concurrent use, and must not be copied. A nil or zero Limiter refuses
// everything.
//
// It keeps nothing but its rate and its burst. The bucket is in the limiter below, which must be closed by
// whoever has made it.
type Limiter struct {
	base    Base
	key     string
	name    string
	clock   clock.Clock
	skewed  atomic.Uint64
	changes sync.Mutex // held while current is replaced
	current atomic.Pointer[setting]
}

// New returns a Limiter that admits burst events of key at once, and r events per second in the long run. lim
// decides, under a rule of that name: the same key and name are one bucket, also for those who ask lim
// directly under a [limit.TokenBucket]. The error says that lim is nil, or that the name is empty or longer
// than 256 bytes.
//
// [rate.Inf] admits everything, and nothing is counted. A rate of 0 or less, and a burst of 0 or less, admit
// nothing.
func New(lim Base, key, name string, r rate.Limit, burst int, o Options) (*Limiter, error) {
	if lim == nil {
		return nil, errors.New("xrate: the limiter is nil")
	}
	s, err := (&setting{tokens: initial}).with(name, r, burst)
	if err != nil {
		return nil, fmt.Errorf("xrate: %w", err)
	}
	l := &Limiter{base: lim, key: key, name: name, clock: o.Clock}
	l.current.Store(s)
	return l, nil
}

// setting returns what is set now. ok is false for a nil or zero Limiter.
func (l *Limiter) setting() (s *setting, ok bool) {
	if l == nil {
		return nil, false
	}
	s = l.current.Load()
	return s, s != nil
}

// Allow reports whether an event may happen now.
func (l *Limiter) Allow() bool {
	s, ok := l.setting()
	return ok && (s.unlimited || l.base.AllowN(l.key, s.rule, 1))
}

// AllowN reports whether n events may happen now: all of them or none. t must be the present time, see
// [MaxSkew]. No events are always admitted. For n < 0 it returns false, and the limiter below counts an
// invalid check.
func (l *Limiter) AllowN(t time.Time, n int) bool {
	s, ok := l.setting()
	if !ok || !s.free(n) && !l.timely(t, s) {
		return false
	}
	return s.free(n) || l.base.AllowN(l.key, s.rule, int64(n))
}

// Wait is [Limiter.WaitN] for one event.
func (l *Limiter) Wait(ctx context.Context) error { return l.WaitN(ctx, 1) }

// WaitN blocks until n events may happen. It returns an error at once, and takes nothing, if that would
// take longer than ctx lasts, or if n is more than the burst: a [*limit.WaitError] if lim is one of this
// project. If ctx ends while it waits, it takes nothing either and returns the error of ctx. For n < 0 the
// error is [limit.ErrInvalidN], and for a nil or zero Limiter [limit.ErrClosed].
//
// It sleeps on the system's timers, whatever clock there is.
func (l *Limiter) WaitN(ctx context.Context, n int) error {
	s, ok := l.setting()
	switch {
	case !ok:
		return fmt.Errorf("xrate: wait: %w", limit.ErrClosed)
	case !s.free(n):
		return l.base.WaitN(ctx, l.key, s.rule, int64(n))
	case ctx != nil:
		return ctx.Err()
	}
	return nil
}

// Tokens is [Limiter.TokensAt] for the present time.
func (l *Limiter) Tokens() float64 { return l.tokens(0) }

// TokensAt returns how many tokens there will be at t if nobody takes any before. It is negative if events
// are reserved ahead. For a time that has passed it returns how many there are now.
func (l *Limiter) TokensAt(t time.Time) float64 {
	if l == nil {
		return 0
	}
	return l.tokens(max(t.Sub(l.time()), 0))
}

// tokens returns how many tokens there will be after d.
func (l *Limiter) tokens(d time.Duration) float64 {
	s, ok := l.setting()
	switch {
	case !ok:
		return 0
	case s.unlimited:
		return float64(max(s.burst, 0))
	}
	return s.tokensAfter(d, l.base.Peek(l.key, s.rule))
}

// Limit returns the rate as it was set, in events per second.
func (l *Limiter) Limit() rate.Limit {
	s, ok := l.setting()
	if !ok {
		return 0
	}
	return s.rate
}

// Burst returns the burst as it was set.
func (l *Limiter) Burst() int {
	s, ok := l.setting()
	if !ok {
		return 0
	}
	return s.burst
}

// SetLimit changes the rate of this Limiter, from the next call on. Others with the same key and name keep
// theirs, in this process and elsewhere: each decides by its own rate about the same bucket. Set it in all of
// them: until then the rate is neither the old nor the new one, and the limiter below counts a conflict.
//
// Tokens that were used stay used. It does nothing to a nil or zero Limiter.
func (l *Limiter) SetLimit(r rate.Limit) { l.change(func(s *setting) { s.rate = r }) }

// SetLimitAt is SetLimit. The time is not used.
func (l *Limiter) SetLimitAt(_ time.Time, r rate.Limit) { l.SetLimit(r) }

// SetBurst changes the burst of this Limiter, from the next call on, as [Limiter.SetLimit] does the rate. What
// was used stays used: of a bucket with 4 of 10 tokens taken, 1 is left if it is set to 5, and 16 if it is
// set to 20.
func (l *Limiter) SetBurst(burst int) { l.change(func(s *setting) { s.burst = burst }) }

// SetBurstAt is SetBurst. The time is not used.
func (l *Limiter) SetBurstAt(_ time.Time, burst int) { l.SetBurst(burst) }

// change replaces the setting by one that differs in what edit does.
func (l *Limiter) change(edit func(*setting)) {
	if _, ok := l.setting(); !ok {
		return
	}
	l.changes.Lock()
	defer l.changes.Unlock()
	was := l.current.Load()
	is := *was
	edit(&is)
	if s, err := was.with(l.name, is.rate, is.burst); err == nil { // New has checked the name, and nothing else can be wrong
		l.current.Store(s)
	}
}

// Skewed returns how often a caller gave a time that was more than [MaxSkew] off the limiter's clock: calls
// of AllowN and ReserveN, which were denied, and of [Reservation.CancelAt]. A limiter of package
// hybrid is told of each, so that it shows in its figures as an invalid check.
func (l *Limiter) Skewed() uint64 {
	if l == nil {
		return 0
	}
	return l.skewed.Load()
}

// timely reports whether t is the present time. If not, it counts that.
func (l *Limiter) timely(t time.Time, s *setting) bool {
	if t.Sub(l.time()).Abs() <= MaxSkew {
		return true
	}
	l.skewed.Add(1)
	if lim := inside.Of(l.base); lim != nil {
		lim.CountInvalid(s.rule)
	}
	return false
}

// time returns the time by the limiter's clock, in the form in which callers have it. Callers get theirs from
// time.Now. So where the clock follows that of the system, a monotonic reading is part of it: without one the
// two would differ as soon as somebody sets the wall clock.
func (l *Limiter) time() time.Time {
	switch l.clock.(type) {
	case nil, clock.System, *clock.Coarse:
		return time.Now()
	}
	return time.Unix(0, int64(l.clock.Now()+clocks.Ahead(l.clock)))
}
