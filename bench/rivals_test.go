package bench

import (
	"context"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Other people's limiters that decide in the process. Each is told the limit of
// the rule: funnels with its rate, windows with an hour of width. Where there
// is a choice, the faster of what the library offers is taken.

// funnelRate is the rate of a rule in units per second.
func funnelRate(rule *limit.Rule) rate.Limit {
	return rate.Limit(float64(arith.Of(rule).Units) / rule.Period().Seconds())
}

// openXtime is one limiter for everything: no key, no map.
func openXtime(_ testing.TB, _ []string, rule *limit.Rule) asks {
	l := rate.NewLimiter(funnelRate(rule), int(rule.Limit()))
	return asks{
		allow: func(string) bool { return l.Allow() },
		peek:  func(string) bool { return l.Tokens() >= 1 },
	}
}

// openXtimeMap has one limiter per key in a map that forgets nothing: what one
// writes around a library that has no keys of its own.
func openXtimeMap(_ testing.TB, _ []string, rule *limit.Rule) asks {
	var m sync.Map
	of := func(key string) *rate.Limiter {
		v, ok := m.Load(key)
		if !ok {
			v, _ = m.LoadOrStore(key, rate.NewLimiter(funnelRate(rule), int(rule.Limit())))
		}
		return v.(*rate.Limiter)
	}
	return asks{
		allow: func(key string) bool { return of(key).Allow() },
		peek:  func(key string) bool { return of(key).Tokens() >= 1 },
	}
}

// openMemorystore has keys of its own, and a fixed window for each.
func openMemorystore(tb testing.TB, keys []string, rule *limit.Rule) asks {
	s, err := memorystore.New(&memorystore.Config{Tokens: uint64(rule.Limit()), Interval: time.Hour, InitialAlloc: len(keys)})
	if err != nil {
		tb.Fatal(err)
	}
	ctx := context.Background()
	tb.Cleanup(func() { _ = s.Close(ctx) })
	return asks{
		allow: func(key string) bool {
			_, _, _, ok, err := s.Take(ctx, key)
			return ok && err == nil
		},
		peek: func(key string) bool {
			of, left, err := s.Get(ctx, key)
			return err == nil && (left > 0 || of == 0) // 0 of 0: it does not know the key
		},
	}
}

// quota is a rule in throttled's words: what fits at once besides the first.
func quota(rule *limit.Rule) throttled.RateQuota {
	return throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(arith.Of(rule).Units), rule.Period()),
		MaxBurst: int(rule.Limit()) - 1,
	}
}

// openThrottled has keys of its own. Its store forgets nothing here: one that
// does takes its lock for writing with every check.
func openThrottled(tb testing.TB, _ []string, rule *limit.Rule) asks {
	store, err := memstore.NewCtx(0)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, quota(rule))
	if err != nil {
		tb.Fatal(err)
	}
	// By default it gives a check up, with an error, when others have been
	// faster 10 times. On one hot key that is up to 1 or 2 in 100 with two
	// processors: they would be cheap, and not decided.
	l.SetMaxCASAttemptsLimit(math.MaxInt)
	ctx := context.Background()
	return asks{
		allow: func(key string) bool {
			limited, _, err := l.RateLimitCtx(ctx, key, 1)
			return !limited && err == nil
		},
		peek: func(key string) bool { // asking for nothing is how it is done
			_, res, err := l.RateLimitCtx(ctx, key, 0)
			return err == nil && res.Remaining > 0
		},
	}
}

// openUlule has keys of its own, and a fixed window for each. Its cleaner is
// not started: nothing but the garbage collector could stop it.
func openUlule(_ testing.TB, _ []string, rule *limit.Rule) asks {
	l := ulule.New(memory.NewStoreWithOptions(ulule.StoreOptions{Prefix: "l"}), ulule.Rate{Period: time.Hour, Limit: rule.Limit()})
	ctx := context.Background()
	return asks{
		allow: func(key string) bool {
			c, err := l.Get(ctx, key)
			return err == nil && !c.Reached
		},
		peek: func(key string) bool {
			c, err := l.Peek(ctx, key)
			return err == nil && c.Remaining > 0
		},
	}
}

// nowhere is a response that nothing is written to.
type nowhere struct{}

func (nowhere) Header() http.Header         { return nil }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}

// openHTTPRate has keys of its own, and a sliding window of two parts. Its
// check is made for a handler: the headers are turned off, and the request is
// always the same.
func openHTTPRate(tb testing.TB, _ []string, rule *limit.Rule) asks {
	r, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		tb.Fatal(err)
	}
	n := int(rule.Limit())
	l := httprate.NewRateLimiter(n, time.Hour, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	return asks{
		allow: func(key string) bool { return !l.OnLimit(nowhere{}, r, key) },
		peek: func(key string) bool {
			_, used, err := l.Status(key)
			return err == nil && int(used) < n
		},
	}
}
