package bench

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// A limit that is not reached in a second of asking, and one that always is.
const (
	manyUnits  = 1_000_000_000
	manyPerSec = 10_000_000
)

var (
	generous = limit.Must(limit.TokenBucket("generous", manyPerSec, time.Second, manyUnits))
	usedUp   = limit.Must(limit.TokenBucket("used up", 1, time.Hour, 1))
)

// asks is a limiter with its rule: what the tables call.
type asks struct {
	allow check
	peek  check // nil: it cannot tell without consuming
}

// room is how many keys our limiters may hold: enough for every load, and for
// those that keep the synchronization busy, so that nobody is evicted.
func room(keys []string) int { return max(4*uniform, 2*len(keys)) }

// openWith returns a limiter that is closed with the benchmark, without waiting
// for its last report.
func openWith(tb testing.TB, rdb *redis.Client, o hybrid.Options) *hybrid.Limiter {
	tb.Helper()
	var client redis.UniversalClient // nil, unlike an interface that holds a nil client
	if rdb != nil {
		client = rdb
		tb.Cleanup(func() { rdb.Close() })
	}
	l, err := hybrid.New(client, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = l.Shutdown(ctx) // says what it could not report
	})
	return l
}

func hybridAsks(l *hybrid.Limiter, rule *limit.Rule) asks {
	return asks{
		allow: func(key string) bool { return l.Allow(key, rule) },
		peek:  func(key string) bool { return l.Peek(key, rule).Allowed },
	}
}

// openHybrid is the hybrid limiter without a Redis.
func openHybrid(tb testing.TB, keys []string, rule *limit.Rule) asks {
	return hybridAsks(openWith(tb, nil, hybrid.Options{MaxKeys: room(keys)}), rule)
}

// coarseClock is a clock that a check reads with one load. It is at most 1 ms
// behind.
func coarseClock(tb testing.TB) clock.Clock {
	c := clock.NewCoarse(time.Millisecond)
	tb.Cleanup(c.Stop)
	return c
}

func openHybridCoarse(tb testing.TB, keys []string, rule *limit.Rule) asks {
	return hybridAsks(openWith(tb, nil, hybrid.Options{MaxKeys: room(keys), Clock: coarseClock(tb)}), rule)
}

// ruled opens a hybrid limiter whose rule is of another algorithm, with the
// same limit.
func ruled(make func(string, int64, time.Duration) (*limit.Rule, error)) opener {
	return func(tb testing.TB, keys []string, rule *limit.Rule) asks {
		return openHybrid(tb, keys, limit.Must(make(rule.Name(), rule.Limit(), time.Hour)))
	}
}

// openLog is for checks that are admitted: a unit is remembered for a millisecond.
func openLog(tb testing.TB, keys []string, rule *limit.Rule) asks {
	return localAsks(tb, local.Options{MaxKeys: room(keys)}, limit.Must(limit.SlidingLog(rule.Name(), 1_000_000, time.Millisecond)))
}

func openLocal(tb testing.TB, keys []string, rule *limit.Rule) asks {
	return localAsks(tb, local.Options{MaxKeys: room(keys)}, rule)
}

func openLocalCoarse(tb testing.TB, keys []string, rule *limit.Rule) asks {
	return localAsks(tb, local.Options{MaxKeys: room(keys), Clock: coarseClock(tb)}, rule)
}

func localAsks(tb testing.TB, o local.Options, rule *limit.Rule) asks {
	l, err := local.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return asks{
		allow: func(key string) bool { return l.Allow(key, rule) },
		peek:  func(key string) bool { return l.Peek(key, rule).Allowed },
	}
}

// dial returns a client of a server as our README tells to make one.
func dial(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true})
}

// openServed returns a hybrid limiter in agreement with a real Redis on the
// loopback interface. What the two need of the processors besides the checks
// comes on top, as on a machine that they share.
func openServed(tb testing.TB, keys []string) (*hybrid.Limiter, *redistest.Server) {
	tb.Helper()
	server := redistest.Start(tb)
	l := openWith(tb, dial(server.Addr()), hybrid.Options{MaxKeys: room(keys)})
	await(tb, l, hybrid.Synced)
	return l, server
}

// openSynced is in agreement with its Redis and tells it of the keys asked.
func openSynced(tb testing.TB, keys []string, rule *limit.Rule) asks {
	l, _ := openServed(tb, keys)
	return hybridAsks(l, rule)
}

// openOutage has a Redis that hangs: connections stay open, nothing is
// answered, and the limiter has noticed.
func openOutage(tb testing.TB, keys []string, rule *limit.Rule) asks {
	l, server := openServed(tb, keys)
	server.FreezeOrSkip(tb)
	await(tb, l, hybrid.Degraded)
	return hybridAsks(l, rule)
}

// dirty is how many other keys have news for Redis at any time. A test that only sees that the row
// works does not need so many: the race detector makes them slow.
func dirty(tb testing.TB) int {
	if _, ok := tb.(*testing.B); ok {
		return 50_000
	}
	return 2_000
}

// openSyncing has a Redis that is told of 50,000 other keys all the time. They
// are asked once per sync interval rather than without a pause: the row is
// about the synchronization, not about a processor that is busy checking.
func openSyncing(tb testing.TB, keys []string, rule *limit.Rule) asks {
	l, _ := openServed(tb, keys)
	others := make([]string, dirty(tb))
	for i, k := range keyNames(len(others)) {
		others[i] = "other:" + k
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, k := range others {
				l.Allow(k, generous)
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	tb.Cleanup(func() { close(stop); <-stopped })
	pollUntil(tb, 30*time.Second, "all the other keys are synced", func() bool { return inside.Of(l).Figures().KeysSynced >= uint64(len(others)) })
	return hybridAsks(l, rule)
}

// await waits until a limiter is in a mode.
func await(tb testing.TB, l *hybrid.Limiter, m hybrid.Mode) {
	tb.Helper()
	pollUntil(tb, 30*time.Second, "the limiter is "+m.String(), func() bool { return l.State().Mode == m })
}
