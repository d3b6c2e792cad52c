package redisrate

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/remote"
)

func TestMain(m *testing.M) {
	redistest.Silence()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// place is a limiter whose time a test moves.
type place struct {
	*Limiter
	pass func(time.Duration)
}

// onEach runs a test with a limiter that decides in memory, and with one by which Redis decides.
func onEach(t *testing.T, test func(t *testing.T, p place)) {
	t.Run("hybrid", func(t *testing.T) {
		// Without Redis: a report that is under way while the clock moves would count later.
		c := clock.NewManual(noon)
		lim, err := hybrid.New(nil, hybrid.Options{Clock: c})
		if err != nil {
			t.Fatal(err)
		}
		l := From(lim)
		t.Cleanup(func() { _ = l.Close() })
		test(t, place{l, func(d time.Duration) { c.Advance(d) }})
	})
	t.Run("remote", func(t *testing.T) {
		lim, server := inRedis(t)
		now := noon
		test(t, place{From(lim), func(d time.Duration) {
			now = now.Add(d)
			server.SetTime(now)
		}})
	})
}

// inRedis returns a limiter that asks an embedded Redis, whose time stands still at noon.
func inRedis(t *testing.T) (*remote.Limiter, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	server.SetTime(noon)
	lim, err := remote.New(client(t, server.Addr()), remote.Options{CommandTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return lim, server
}

func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(hybrid.RedisOptions(addr))
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// take asks for n requests.
func take(t *testing.T, l *Limiter, key string, lim Limit, n int) Result {
	t.Helper()
	return must(t)(l.AllowN(t.Context(), key, lim, n))
}

// most asks for at most n requests.
func most(t *testing.T, l *Limiter, key string, lim Limit, n int) Result {
	t.Helper()
	return must(t)(l.AllowAtMost(t.Context(), key, lim, n))
}

func must(t *testing.T) func(*Result, error) Result {
	return func(res *Result, err error) Result {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return *res
	}
}

func want(t *testing.T, what string, got, want Result) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}
