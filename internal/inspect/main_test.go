package inspect

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

var ctx = context.Background()

// pace is how long an exchange may take on a busy machine.
const pace = 10 * time.Second

// backend is one of the two Redises, with what counts there and what looks at it.
type backend struct {
	t    *testing.T
	rdb  *redis.Client
	mini *miniredis.Miniredis // nil for the real one
	l    *remote.Limiter
	s    *Survey
}

func on(t *testing.T, addr string, mini *miniredis.Miniredis) *backend {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	l, s := of(t, rdb)
	return &backend{t, rdb, mini, l, s}
}

func of(t *testing.T, rdb redis.UniversalClient) (*remote.Limiter, *Survey) {
	t.Helper()
	l, err := remote.New(rdb, remote.Options{CommandTimeout: pace})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(rdb, redisstore.Options{CommandTimeout: pace})
	if err != nil {
		t.Fatal(err)
	}
	return l, s
}

// onMini returns a miniredis whose clock stands still.
func onMini(t *testing.T) *backend {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	m.SetTime(time.Unix(1_760_000_000, 0))
	return on(t, m.Addr(), m)
}

func onReal(t *testing.T) *backend {
	t.Helper()
	return on(t, redistest.Start(t).Addr(), nil)
}

func onBoth(t *testing.T, test func(t *testing.T, b *backend)) {
	t.Run("miniredis", func(t *testing.T) { test(t, onMini(t)) })
	t.Run("redis", func(t *testing.T) { test(t, onReal(t)) })
}

func (b *backend) set(key, value string) {
	b.t.Helper()
	if err := b.rdb.Set(ctx, key, value, time.Hour).Err(); err != nil {
		b.t.Fatal(err)
	}
}

// dump returns all that is in Redis.
func (b *backend) dump() (all string) {
	b.t.Helper()
	keys := b.rdb.Keys(ctx, "*").Val()
	slices.Sort(keys)
	for _, k := range keys {
		all += fmt.Sprintf("%q: %q %v\n", k, b.rdb.Get(ctx, k).Val(), b.rdb.ZRangeWithScores(ctx, k, 0, -1).Val())
	}
	return all
}
