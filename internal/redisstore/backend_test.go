package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
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

// Limiter asks a store as package remote does.
type Limiter struct{ *Store }

func (b *backend) limiter() *Limiter { return &Limiter{b.store()} }

func (l *Limiter) ask(mode TakeMode, key string, rule *limit.Rule, n int64) (Answer, error) {
	t, _, err := l.Store.Take(ctx, mode, Ask{Counter: l.keys.CounterKey(rule, key), Rule: rule, Units: n, Own: n})
	if err != nil {
		return Answer{}, err
	}
	return t.Answers[0], nil
}

func (l *Limiter) Take(_ context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	a, err := l.ask(Book, key, rule, n)
	if err != nil {
		return limit.Result{}, err
	}
	return a.Result(n), nil
}

func (l *Limiter) Peek(_ context.Context, key string, rule *limit.Rule) (limit.Result, error) {
	a, err := l.ask(Look, key, rule, 1)
	if err != nil {
		return limit.Result{}, err
	}
	return a.Result(1), nil
}

func (l *Limiter) Set(_ context.Context, key string, rule *limit.Rule, used int64) error {
	_, err := l.Renew(ctx, key, rule, used)
	return err
}

func (l *Limiter) Reset(_ context.Context, key string, rule *limit.Rule) error {
	return l.Set(ctx, key, rule, 0)
}

func (b *backend) store() *Store {
	b.t.Helper()
	return limit.Must(NewStore(b.rdb, Options{Shards: 1, CommandTimeout: 5 * time.Second}))
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

// execAll is Exec without a message.
func execAll(s *Store, batches []*Batch) []Outcome {
	out, _ := s.Exec(ctx, batches, nil)
	return out
}

// booked is a reply, and the units in the node's ledger: all that Redis has booked, or forgiven.
type booked struct {
	Reply
	Total int64
}

// exec sends one batch and ends the test on an error.
func exec(t testing.TB, s *Store, b *Batch) booked {
	t.Helper()
	out := execAll(s, []*Batch{b})[0]
	if out.Err != nil {
		t.Fatalf("batch %d: %v", b.Seq, out.Err)
	}
	return booked{out.Reply, totalOf(s.rdb, s.keys.SeqKey(b.Shard, b.Node))}
}

// totalOf returns the units in a node's ledger, 0 if it cannot be read.
func totalOf(rdb redis.UniversalClient, key string) (total int64) {
	ledger, _ := rdb.Get(ctx, key).Result()
	if f := strings.Fields(ledger); len(f) == 5 {
		total, _ = strconv.ParseInt(f[2], 10, 64)
	}
	return total
}

// wantReply checks a reply's fate and ledger.
func wantReply(t testing.TB, r booked, v Verdict, total int64) {
	t.Helper()
	if r.Verdict != v || r.Total != total {
		t.Fatalf("%v with total %d, want %v with total %d", r.Verdict, r.Total, v, total)
	}
	if withStates := v == VerdictApplied || v == VerdictDuplicate; withStates == (r.States == nil) {
		t.Fatalf("%v with %d states", v, len(r.States))
	}
}

func show(r limit.Result) string {
	return fmt.Sprintf("allowed=%v limit=%d remaining=%d retry=%v reset=%v", r.Allowed, r.Limit, r.Remaining, r.RetryAfter, r.ResetAfter)
}

func remains(t *testing.T, l *Limiter, key string, r *limit.Rule) int64 {
	t.Helper()
	return take(t, l, key, r, 0).Remaining
}
