// Package redisrate has the names of github.com/go-redis/redis_rate/v10, so that a program which uses
// that module changes one import, and closes its limiter when it ends:
//
//	import redis_rate "github.com/hybridlimit/hybridlimit/compat/redisrate"
//
//	limiter := redis_rate.NewLimiter(rdb) // one for the process
//	defer limiter.Close()                 // reports what is pending
//	…
//	res, err := limiter.Allow(ctx, "project:123", redis_rate.PerMinute(100))
//	if err == nil && res.Allowed == 0 {
//		// refuse; res.RetryAfter says when to come back
//	}
//
// A check is decided in memory by package hybrid, which shares the counts through Redis in the
// background. To let Redis decide each check, as redis_rate does, make a limiter of package remote and
// pass it to [From].
//
// A [Limit] is a token bucket: Burst requests at once, and Rate more in each Period. [PerMinute] of this
// package therefore differs from limit.PerMinute, which is a sliding window. New code should use packages
// hybrid and limit directly.
//
// # What differs from redis_rate
//
// Counters are kept under other names in Redis, so that they begin empty. A key has a counter for each
// Rate and Period that it is checked with; redis_rate has one for all. Another Burst goes on with what was
// used. A negative n and a Limit that is none are errors. docs/migrate/redis_rate.md has the whole list.
package redisrate

import (
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Limit is a token bucket: it holds Burst requests, and gets back Rate requests in each Period. With a Burst
// of 0 every request is refused. A Rate or Period of 0, and negative numbers, are errors of the calls that
// get the Limit. The zero Limit is none, see [Limit.IsZero].
type Limit struct {
	Rate   int
	Burst  int
	Period time.Duration
}

// PerSecond is rate requests at once, and rate more in each second.
func PerSecond(rate int) Limit { return per(time.Second, rate) }

// PerMinute is rate requests at once, and rate more in each minute.
func PerMinute(rate int) Limit { return per(time.Minute, rate) }

// PerHour is rate requests at once, and rate more in each hour.
func PerHour(rate int) Limit { return per(time.Hour, rate) }

func per(period time.Duration, rate int) Limit { return Limit{Rate: rate, Burst: rate, Period: period} }

// IsZero reports whether l is the zero Limit.
func (l Limit) IsZero() bool { return l == Limit{} }

// String describes the limit, for example "10 req/m (burst 20)".
func (l Limit) String() string {
	return fmt.Sprintf("%d req/%s (burst %d)", l.Rate, l.period(), l.Burst)
}

// period returns the period, as one letter if that is enough.
func (l Limit) period() string {
	switch l.Period {
	case time.Second:
		return "s"
	case time.Minute:
		return "m"
	case time.Hour:
		return "h"
	}
	return l.Period.String()
}

// rule returns the token bucket that l is. The error names each number that is wrong.
//
// The rate is part of the name. Rules of one name share the counter of a key, and so must have the same
// rate: limits of different keys that shared a name would be reported as a conflict. The burst is not part
// of the name, so that a counter goes on when the burst is changed.
func (l Limit) rule() (*limit.Rule, error) {
	var errs []error
	if l.Rate < 1 {
		errs = append(errs, fmt.Errorf("redisrate: limit %v: Rate is %d, must be at least 1", l, l.Rate))
	}
	if l.Burst < 0 {
		errs = append(errs, fmt.Errorf("redisrate: limit %v: Burst is %d, must not be negative", l, l.Burst))
	}
	if l.Period <= 0 || l.Period > arith.MaxWindow {
		errs = append(errs, fmt.Errorf("redisrate: limit %v: Period is %v, must be above 0 and at most %v", l, l.Period, arith.MaxWindow))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("rate/%d/%s", l.Rate, l.period())
	rule, err := limit.TokenBucket(name, int64(l.Rate), l.Period, int64(l.Burst))
	if err != nil {
		return nil, fmt.Errorf("redisrate: limit %v: %w", l, err)
	}
	return rule, nil
}

// Result is the answer to a check. The zero Result is a refusal.
type Result struct {
	// Limit is the limit of the check.
	Limit Limit
	// Allowed is how many requests are admitted: n or 0 for [Limiter.AllowN].
	Allowed int
	// Remaining is how many more would be admitted now. It is 0 in a refusal, also if fewer than n would be
	// admitted.
	Remaining int
	// RetryAfter is -1 if the check was not refused. Else it is how long until the same check is admitted, if
	// no other takes requests. A check for more than Burst is never admitted: then it is how long until the
	// bucket would have them if it were large enough.
	RetryAfter time.Duration
	// ResetAfter is how long until the bucket is full, if no other check takes requests.
	ResetAfter time.Duration
}
