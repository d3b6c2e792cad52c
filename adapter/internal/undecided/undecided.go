// Package undecided counts and logs what a middleware could not ask its limiter, or what that did
// not answer, for the middlewares of all protocols.
package undecided

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Every is how long a line keeps others of its kind back.
const Every = 10 * time.Second

// Log writes a line a while of each kind: of what callers have to mend, and of what the
// service has to, so that a flood of the former does not hide the latter. It is safe for
// concurrent use.
type Log struct {
	logger *slog.Logger
	clock  clock.Clock
	text   string
	mu     sync.Mutex // protects kinds
	kinds  [2]kind
}

type kind struct {
	next    time.Duration // when a line may be written
	skipped int
}

// New returns a log of lines with a text. A nil logger is the default one of slog, at the time
// of the line.
func New(logger *slog.Logger, c clock.Clock, text string) *Log {
	return &Log{logger: logger, clock: c, text: text}
}

// Note logs an error, at level Error if the service has to mend it, else at Warn.
func (l *Log) Note(ctx context.Context, service bool, err error) {
	level, i := slog.LevelWarn, 0
	if service {
		level, i = slog.LevelError, 1
	}
	now := l.clock.Now()
	l.mu.Lock()
	k := &l.kinds[i]
	skipped, wait := k.skipped, k.next > now && k.next-now <= Every // a clock may be set back
	if wait {
		k.skipped++
	} else {
		*k = kind{next: now + Every}
	}
	l.mu.Unlock()
	if wait {
		return
	}
	attrs := []slog.Attr{slog.String("err", err.Error())}
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped", skipped))
	}
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(ctx, level, l.text, attrs...)
}

// Count counts a check that could not be asked as invalid, under the name of its rule, if the
// limiter has figures. The rule may be nil.
func Count(lim any, rule *limit.Rule) {
	if v := inside.Of(lim); v != nil {
		v.CountInvalid(rule)
	}
}

// CountExempt counts a check that was not made because nothing limits who asks, under the name of the
// rules, if the limiter has figures.
func CountExempt(lim any, name string) {
	if v := inside.Of(lim); v != nil {
		v.CountExempt(name)
	}
}

// Over returns why a call has ended by itself, nil if it has not. A deadline that has passed counts
// before the context says so: a connection that has the same deadline may report it first, and
// whoever lets calls pass when a limiter fails would let this one pass.
func Over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if at, bounded := ctx.Deadline(); bounded && clocks.Until(at) <= 0 {
		return context.DeadlineExceeded
	}
	return nil
}
