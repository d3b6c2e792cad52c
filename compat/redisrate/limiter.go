package redisrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// Limiter answers checks. Make it with [NewLimiter] or [From], once for a process: each Limiter of NewLimiter
// is a node of its own, with a connection and goroutines. All methods are safe for concurrent use. A copy of a
// Limiter is the same limiter. All calls of a nil or zero Limiter return an error.
type Limiter struct {
	by    decider
	rules *rules
	end   func() error // nil: there is nothing to close
	err   error        // why it cannot be used
}

// decider is what decides: a *remote.Limiter does by its own methods, a *hybrid.Limiter as memory.
type decider interface {
	Take(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error)
	TakeAtMost(ctx context.Context, key string, rule *limit.Rule, n int64) (granted int64, res limit.Result, err error)
	Peek(ctx context.Context, key string, rule *limit.Rule) (limit.Result, error)
	Reset(ctx context.Context, key string, rule *limit.Rule) error
}

var (
	errNotMade = errors.New("redisrate: the Limiter was not made by NewLimiter or From")
	errNil     = errors.New("redisrate: the client or limiter is nil")
)

// NewLimiter returns a Limiter that decides in memory and shares its counts through rdb in the background, as a
// limiter of package hybrid with the default options. It does not wait for Redis, and works while Redis is
// away. The program must call [Limiter.Close] when it ends.
//
// rdb is a *redis.Client, *redis.ClusterClient or *redis.Ring, or another [redis.UniversalClient]; as with
// redis_rate it may be in a variable of a smaller interface. With nil, a pipeline, a transaction or a single
// connection each call of the Limiter returns an error, and nothing is admitted. For other options, and for
// an error at once, make a limiter by hybrid.New and pass it to [From].
func NewLimiter(rdb redis.Scripter) *Limiter {
	if isNil(rdb) {
		return &Limiter{err: errNil}
	}
	client, ok := rdb.(redis.UniversalClient)
	if !ok {
		return &Limiter{err: fmt.Errorf("redisrate: %T is no redis.UniversalClient, such as *redis.Client", rdb)}
	}
	lim, err := hybrid.New(client, hybrid.Options{})
	if err != nil {
		return &Limiter{err: fmt.Errorf("redisrate: %w", err)}
	}
	return From(lim)
}

// From returns a Limiter by which lim decides. With a [*hybrid.Limiter] the program chooses the options, and has
// the limiter for its metrics. With a [*remote.Limiter] Redis decides each check, and a check fails if Redis
// does: as redis_rate works. With a nil lim each call returns an error.
func From[L *hybrid.Limiter | *remote.Limiter](lim L) *Limiter {
	switch lim := any(lim).(type) {
	case *hybrid.Limiter:
		if lim != nil {
			return &Limiter{by: memory{lim}, rules: new(rules), end: lim.Close}
		}
	case *remote.Limiter:
		if lim != nil {
			return &Limiter{by: lim, rules: new(rules)}
		}
	}
	return &Limiter{err: errNil}
}

func isNil(v any) bool {
	is := reflect.ValueOf(v)
	return v == nil || is.Kind() == reflect.Pointer && is.IsNil()
}

// Allow is [Limiter.AllowN] of one request.
func (l *Limiter) Allow(ctx context.Context, key string, lim Limit) (*Result, error) {
	return l.AllowN(ctx, key, lim, 1)
}

// AllowN admits n requests of key under lim, all or none. With n = 0 it only says what remains; a Limiter that
// decides in memory then knows only of keys that its process has used lately.
//
// Errors: [limit.ErrInvalidN] for a negative n, one about a Limit that is none, that of a Limiter that could
// not be made and, if Redis decides, that of package remote. With an error the Result is nil. A Limiter
// that decides in memory ignores ctx, as it never waits.
func (l *Limiter) AllowN(ctx context.Context, key string, lim Limit, n int) (*Result, error) {
	rule, err := l.check(lim, n)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		res, err := l.by.Peek(ctx, key, rule)
		if err != nil {
			return nil, failed(err)
		}
		return admitted(lim, 0, res), nil
	}
	res, err := l.by.Take(ctx, key, rule, int64(n))
	switch {
	case err != nil:
		return nil, failed(err)
	case !res.Allowed:
		return refused(lim, rule, int64(n), res), nil
	}
	return admitted(lim, int64(n), res), nil
}

// AllowAtMost admits as many requests of key under lim as there are, up to n. With n = 0 it only says what remains,
// and whether one request would be refused. The errors are those of [Limiter.AllowN].
func (l *Limiter) AllowAtMost(ctx context.Context, key string, lim Limit, n int) (*Result, error) {
	rule, err := l.check(lim, n)
	if err != nil {
		return nil, err
	}
	var granted int64
	var res limit.Result
	if n == 0 {
		res, err = l.by.Peek(ctx, key, rule)
	} else {
		granted, res, err = l.by.TakeAtMost(ctx, key, rule, int64(n))
	}
	switch {
	case err != nil:
		return nil, failed(err)
	case !res.Allowed:
		return refused(lim, rule, 1, res), nil
	}
	return admitted(lim, granted, res), nil
}

// Reset forgets what key has used under each limit that this Limiter has seen, of the last 1,024 or so, for
// all processes. It takes a round trip for each different Rate and Period of them. A Limiter that has
// seen none returns an error: a program that only resets calls AllowN with its limits and n = 0 before. After
// an error it is safe to call Reset again.
//
// A Limiter that decides in memory reports in the background. Requests that other processes have admitted in the
// last second may arrive in Redis after the reset, and then still count.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := l.usable(); err != nil {
		return err
	}
	counters := l.rules.counters()
	if len(counters) == 0 {
		return errors.New("redisrate: Reset before any check: the Limiter does not know the limits of the key; AllowN with n = 0 makes one known")
	}
	var unusable []error
	for _, rule := range counters {
		if err := l.by.Reset(ctx, key, rule); err != nil {
			if one := new(limit.KeyError); !errors.As(err, &one) {
				return failed(err) // the others would fail, too
			}
			unusable = append(unusable, failed(err))
		}
	}
	return errors.Join(unusable...)
}

// Close reports to Redis what it has not been told yet, within 5 s, and ends the goroutines of the Limiter. It
// closes the [*hybrid.Limiter] that was passed to [From], too, but never the client. The error says how many
// requests Redis does not know. Checks after that are answered from memory alone. If Redis decides there is
// nothing to close.
func (l *Limiter) Close() error {
	if err := l.usable(); err != nil || l.end == nil {
		return err
	}
	if err := l.end(); err != nil {
		return failed(err)
	}
	return nil
}

// usable returns why the Limiter cannot be used.
func (l *Limiter) usable() error {
	if l == nil || l.by == nil && l.err == nil {
		return errNotMade
	}
	return l.err
}

// check returns the rule of a limit, or why n requests cannot be asked for.
func (l *Limiter) check(lim Limit, n int) (*limit.Rule, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, fmt.Errorf("redisrate: %w: %d", limit.ErrInvalidN, n)
	}
	return l.rules.get(lim)
}

func failed(err error) error { return fmt.Errorf("redisrate: %w", err) }

// admitted returns the answer that n requests are admitted.
func admitted(lim Limit, n int64, res limit.Result) *Result {
	return &Result{Limit: lim, Allowed: int(n), Remaining: int(res.Remaining), RetryAfter: -1, ResetAfter: res.ResetAfter}
}

// refused returns the answer that n requests are refused.
//
// A program that waits for RetryAfter may raise the burst meanwhile: for more than the burst it is not
// [limit.Never] but, as with redis_rate, when they would fit.
func refused(lim Limit, rule *limit.Rule, n int64, res limit.Result) *Result {
	wait := res.RetryAfter
	if n > rule.Limit() {
		wait = res.ResetAfter + min(arith.Of(rule).Cost(n-rule.Limit()).Ceil(), math.MaxInt64-res.ResetAfter)
	}
	return &Result{Limit: lim, RetryAfter: max(wait, 1), ResetAfter: res.ResetAfter}
}

// memory is a limiter that answers from memory, in the form of one that asks Redis.
type memory struct{ *hybrid.Limiter }

func (m memory) Take(_ context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	return decided(m.Limiter.Take(key, rule, n))
}

func (m memory) TakeAtMost(_ context.Context, key string, rule *limit.Rule, n int64) (granted int64, res limit.Result, err error) {
	granted, res = m.Limiter.TakeAtMost(key, rule, n)
	res, err = decided(res)
	return granted, res, err
}

func (m memory) Peek(_ context.Context, key string, rule *limit.Rule) (limit.Result, error) {
	return decided(m.Limiter.Peek(key, rule))
}

// decided returns an error if a limiter could not decide although rule and n are valid: it is a zero one.
func decided(res limit.Result) (limit.Result, error) {
	if res.Source == limit.SourceInvalid {
		return res, fmt.Errorf("hybrid: the Limiter was not made by New: %w", limit.ErrClosed)
	}
	return res, nil
}
