package remote

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) {
	redistest.Silence()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

var ctx = context.Background()

// What all tests of this package use.
var (
	options, dial          = redistest.ClientOptions, redistest.Dial
	built, callRules       = limittest.Built, limittest.Each
	funnel, sliding, fixed = limittest.Funnel, limittest.Sliding, limittest.Fixed
	daily, slidingLog      = limittest.Daily, limittest.SlidingLog
)

// pace bounds how far a real server's clock goes on between two calls of a test.
const pace = 10 * time.Second

// epoch is where virtual time begins: a µs count whose digits a careless %s
// would lose.
var epoch = time.Unix(1_760_000_000, 123_456_000)

// backend is one of the two Redises that every script must treat alike.
type backend struct {
	t    *testing.T
	rdb  *redis.Client
	addr string
	mini *miniredis.Miniredis // nil for the real one
	real *redistest.Server    // nil for miniredis
	at   time.Time            // virtual time of miniredis
}

// onMini returns a miniredis whose clock stands still at epoch.
func onMini(t *testing.T) *backend {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	m.SetTime(epoch)
	return &backend{t: t, rdb: dial(t, m.Addr()), addr: m.Addr(), mini: m, at: epoch}
}

func onReal(t *testing.T, args ...string) *backend {
	t.Helper()
	return of(t, redistest.Start(t, args...))
}

// onServer returns a server that is started by a program, see redistest.OnEach.
func onServer(t *testing.T, binary string) *backend {
	t.Helper()
	s, err := redistest.Launch(redistest.Options{Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return of(t, s)
}

func of(t *testing.T, s *redistest.Server) *backend {
	t.Helper()
	return &backend{t: t, rdb: dial(t, s.Addr()), addr: s.Addr(), real: s}
}

// onBoth runs a test against both backends.
func onBoth(t *testing.T, test func(t *testing.T, b *backend)) {
	t.Run("miniredis", func(t *testing.T) { test(t, onMini(t)) })
	t.Run("redis", func(t *testing.T) { test(t, onReal(t)) })
}

// advance moves virtual time.
func (b *backend) advance(d time.Duration) {
	b.at = b.at.Add(d)
	b.mini.SetTime(b.at)
}

// pass lets some time pass; on a real server it does so by itself.
func (b *backend) pass() {
	if b.mini != nil {
		b.advance(time.Millisecond)
	}
}

func (b *backend) limiter() *Limiter {
	b.t.Helper()
	return limit.Must(New(b.rdb, Options{CommandTimeout: 30 * time.Second}))
}

func (b *backend) store() *redisstore.Store {
	b.t.Helper()
	return limit.Must(redisstore.NewStore(b.rdb, redisstore.Options{Shards: 1, CommandTimeout: 30 * time.Second}))
}

// now returns Redis' time in µs.
func (b *backend) now() int64 {
	b.t.Helper()
	at, err := b.rdb.Time(ctx).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	return at.UnixMicro()
}

func (b *backend) set(key, value string) {
	b.t.Helper()
	if err := b.rdb.Set(ctx, key, value, time.Hour).Err(); err != nil {
		b.t.Fatal(err)
	}
}

// spoil puts something else in the place of a counter.
func (b *backend) spoil(l *Limiter, key string, rule *limit.Rule) {
	b.t.Helper()
	name := l.store.Keyspace().CounterKey(rule, key)
	b.rdb.Del(ctx, name)
	b.rdb.SAdd(ctx, name, "x")
	b.rdb.Expire(ctx, name, time.Hour)
}

// get returns the string at a key, "" if there is none.
func (b *backend) get(key string) string {
	b.t.Helper()
	v, err := b.rdb.Get(ctx, key).Result()
	if err != nil && err != redis.Nil {
		b.t.Fatal(err)
	}
	return v
}

// keys returns all keys there are.
func (b *backend) keys() []string {
	b.t.Helper()
	all, err := b.rdb.Keys(ctx, "*").Result()
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// everyKeyExpires checks that nothing has been left without a sane TTL.
func (b *backend) everyKeyExpires() {
	b.t.Helper()
	for _, k := range b.keys() {
		ttl, err := b.rdb.PTTL(ctx, k).Result()
		if err != nil {
			b.t.Fatal(err)
		}
		if ttl <= 0 || ttl > 201*365*24*time.Hour {
			b.t.Errorf("key %q has a TTL of %v", k, ttl)
		}
	}
}

// take asks and ends the test on an error.
func take(t testing.TB, l *Limiter, key string, rule *limit.Rule, n int64) limit.Result {
	t.Helper()
	res, err := l.Take(ctx, key, rule, n)
	if err != nil {
		t.Fatalf("Take(%q, %v, %d): %v", key, rule, n, err)
	}
	if res.Source != limit.SourceRemote {
		t.Fatalf("source %v", res.Source)
	}
	return res
}

// answers asks one unit at a time, n times, and draws the answers: 1 and 0.
func answers(t testing.TB, l *Limiter, key string, rule *limit.Rule, n int) string {
	t.Helper()
	var b strings.Builder
	for range n {
		b.WriteByte(mark(take(t, l, key, rule, 1).Allowed))
	}
	return b.String()
}

func mark(allowed bool) byte {
	if allowed {
		return '1'
	}
	return '0'
}

// exec sends one batch and ends the test on an error.
func exec(t testing.TB, s *redisstore.Store, b *redisstore.Batch) redisstore.Reply {
	t.Helper()
	out, _ := s.Exec(ctx, []*redisstore.Batch{b}, nil)
	if out[0].Err != nil {
		t.Fatalf("batch %d: %v", b.Seq, out[0].Err)
	}
	return out[0].Reply
}

func show(r limit.Result) string {
	return fmt.Sprintf("allowed=%v limit=%d remaining=%d retry=%v reset=%v", r.Allowed, r.Limit, r.Remaining, r.RetryAfter, r.ResetAfter)
}
