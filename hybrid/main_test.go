package hybrid_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// go-redis reports every failed dial on stderr; here they fail by design.
	redis.SetLogger(silence{})
	slog.SetDefault(slog.New(slog.DiscardHandler)) // so do outages
	// Tests with a real server mostly wait, for outages to be noticed and to end. Two at a time, as on
	// two processors, they take five minutes. The race detector needs the processors for itself.
	if parallel := flag.Lookup("test.parallel"); !hybrid.UnderRace && parallel.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = parallel.Value.Set(strconv.Itoa(max(8, runtime.GOMAXPROCS(0))))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

var bg = context.Background()

// Rules that do not forget anything while a test runs, so that what Redis
// counts must be exactly what was admitted.
var (
	longWindow = limit.Must(limit.SlidingWindow("long", 1_000_000, 24*time.Hour))
	longTen    = limit.Must(limit.SlidingWindow("ten", 10, 24*time.Hour))
	longFunnel = limit.Must(limit.TokenBucket("slow", 10, 24*time.Hour, 10))
	hundred    = limit.Must(limit.SlidingWindow("hundred", 100, 24*time.Hour))
)

// clientOptions are those that the README recommends: deadlines hold, and no
// round trips are spent on what old servers do not know.
func clientOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		ContextTimeoutEnabled:    true,
		DialerRetries:            1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func newLimiter(t testing.TB, rdb redis.UniversalClient, o hybrid.Options) *hybrid.Limiter {
	t.Helper()
	l, err := hybrid.New(rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	// Whatever state the test leaves it in: Close must end its goroutines, or
	// goleak (and the bubble) will complain.
	t.Cleanup(func() { _ = l.Shutdown(bg) })
	return l
}

// admitted asks for one unit n times and returns how many were admitted.
func admitted(l *hybrid.Limiter, key string, rule *limit.Rule, n int) (yes int) {
	for range n {
		if l.Allow(key, rule) {
			yes++
		}
	}
	return yes
}

func wantAdmitted(t testing.TB, l *hybrid.Limiter, key string, rule *limit.Rule, asked, want int) {
	t.Helper()
	if got := admitted(l, key, rule, asked); got != want {
		t.Fatalf("%d of %d admitted, want %d (%v)", got, asked, want, l.State())
	}
}

func wantMode(t testing.TB, l *hybrid.Limiter, m hybrid.Mode) {
	t.Helper()
	if s := l.State(); s.Mode != m {
		t.Fatalf("state: %v, want %v (%+v)", s, m, l.Figures())
	}
}

func flush(t testing.TB, l *hybrid.Limiter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, time.Minute) // a test that hangs shows nothing
	defer cancel()
	if err := l.Flush(ctx); err != nil {
		t.Fatalf("flush: %v (%v)", err, l.State())
	}
}

// conserved checks that a limiter's own books balance: what it has admitted
// is booked, expired, or still waiting; with nothing waiting if settled.
func conserved(t testing.TB, l *hybrid.Limiter, settled bool) {
	t.Helper()
	s := l.Figures()
	if s.BookedUnits+s.ForgivenUnits+s.ExpiredUnits+s.WithdrawnUnits+s.PendingUnits+s.OverflowUnits != s.AdmittedUnits || s.PendingUnits < 0 {
		t.Fatalf("the books do not balance: %+v", s)
	}
	if settled && s.PendingUnits != 0 {
		t.Fatalf("%d units still pending: %+v", s.PendingUnits, s)
	}
}

// counterKey names the counter in a single Redis under the default options.
func counterKey(rule *limit.Rule, key string) string { return counterKeyIn(1, rule, key) }

// clusterKey names it in a Cluster.
func clusterKey(rule *limit.Rule, key string) string {
	return counterKeyIn(redisstore.DefaultShards, rule, key)
}

func counterKeyIn(shards int, rule *limit.Rule, key string) string {
	ks, err := redisstore.NewKeyspace("", shards)
	if err != nil {
		panic(err)
	}
	return ks.CounterKey(rule, key)
}

// usedIn asks Redis how many units of key are counted under rule.
func usedIn(t testing.TB, rdb redis.UniversalClient, key string, rule *limit.Rule) int64 {
	t.Helper()
	l, err := remote.New(rdb, remote.Options{CommandTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	res, err := l.Peek(bg, key, rule)
	if err != nil {
		t.Fatal(err)
	}
	return rule.Limit() - res.Remaining
}

// totalIn returns the sum of what a window's counter in Redis holds, above the
// limit too; of a window that is longer than the test it is all that was ever
// booked.
func totalIn(t testing.TB, rdb redis.UniversalClient, redisKey string) (sum int64) {
	t.Helper()
	v, err := rdb.Get(bg, redisKey).Result()
	if errors.Is(err, redis.Nil) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(v) // "w", generation, birth, width, id:units:last …
	if len(fields) < 4 || fields[0] != "w" {
		t.Fatalf("%s holds %q", redisKey, v)
	}
	for _, f := range fields[4:] {
		_, units, _ := strings.Cut(f, ":")
		units, _, _ = strings.Cut(units, ":")
		n, err := strconv.ParseInt(units, 10, 64)
		if err != nil {
			t.Fatalf("%s holds %q", redisKey, v)
		}
		sum += n
	}
	return sum
}

// logbook is a slog handler that remembers the lines.
type logbook struct {
	mu    sync.Mutex
	lines []slog.Record
}

func (b *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logbook) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logbook) WithGroup(string) slog.Handler            { return b }

func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	if isOfTests(r) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, r)
	return nil
}

// isOfTests reports whether a line is about the clients of tests, which keep the retries
// of go-redis on purpose.
func isOfTests(r slog.Record) bool { return strings.Contains(r.Message, hybrid.EventClient.String()) }

// count returns the lines of a level, and all of them.
func (b *logbook) count(l slog.Level) (of, all int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.lines {
		if r.Level == l {
			of++
		}
	}
	return of, len(b.lines)
}

// alarms returns the number of warnings and errors.
func (b *logbook) alarms() int {
	warnings, _ := b.count(slog.LevelWarn)
	errors, _ := b.count(slog.LevelError)
	return warnings + errors
}

// text returns the lines as a person would read them.
func (b *logbook) text() (s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.lines {
		s += r.Level.String() + " " + r.Message
		r.Attrs(func(a slog.Attr) bool { s += fmt.Sprintf(" %v", a); return true })
		s += "\n"
	}
	return s
}

// changes records the calls of OnStateChange.
type changes struct {
	mu   sync.Mutex
	seen []hybrid.State
}

func (c *changes) add(s hybrid.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, s)
}

func (c *changes) modes() (m []hybrid.Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.seen {
		m = append(m, s.Mode)
	}
	return m
}
