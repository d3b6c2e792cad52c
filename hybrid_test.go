package hybridlimit_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Acceptance tests of the whole, seen from where a user stands. The rows are
// those of systems described elsewhere that this module must be able to stand
// in for; each runs with one node, and shared by several. That Redis goes away,
// or comes back empty, is TestRealOutageOfAFleet and TestRealDataLost of hybrid.

func TestMain(m *testing.M) {
	redistest.Silence()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

var (
	bg    = context.Background()
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// site is a Redis and some nodes on one clock that moves only when told to.
type site struct {
	t     *testing.T
	clock *clock.Manual
	redis *miniredis.Miniredis // nil: one node that shares nothing
	nodes []*hybrid.Limiter
	turn  int
}

// onSites runs a test with a limiter of its own, with one node on a Redis,
// and with two and three that share it.
func onSites(t *testing.T, test func(t *testing.T, s *site)) {
	for name, nodes := range map[string]int{"no Redis": 0, "one node": 1, "two nodes": 2, "three nodes": 3} {
		t.Run(name, func(t *testing.T) { test(t, newSite(t, nodes)) })
	}
}

func newSite(t *testing.T, nodes int) *site {
	t.Helper()
	s := &site{t: t, clock: clock.NewManual(epoch)}
	if nodes == 0 {
		s.join(nil)
		return s
	}
	s.redis = miniredis.NewMiniRedis()
	t.Cleanup(s.redis.Close)
	s.redis.ClockTTL(true)
	s.redis.SetTime(epoch)
	for range nodes {
		o := redistest.ClientOptions("127.0.0.1:6379")
		o.MaxRetries = -1
		o.Dialer = func(context.Context, string, string) (net.Conn, error) { return s.redis.Dial() }
		rdb := redis.NewClient(o)
		t.Cleanup(func() { rdb.Close() })
		s.join(rdb)
	}
	return s
}

func (s *site) join(rdb redis.UniversalClient) {
	s.t.Helper()
	// Only what the test causes is to happen: an exchange under way while the
	// two clocks are being moved would see them disagree.
	o := hybrid.Options{Clock: s.clock, CommandTimeout: 5 * time.Second, SyncInterval: time.Minute, HeartbeatInterval: time.Minute}
	l := limit.Must(hybrid.New(rdb, o))
	s.t.Cleanup(func() { _ = l.Shutdown(bg) })
	s.nodes = append(s.nodes, l)
}

// sync lets every node hear of what the others did: what a sync interval
// brings about, without the wait.
func (s *site) sync() {
	s.t.Helper()
	for range 2 { // the second round tells the first node what the last has booked
		for _, l := range s.nodes {
			if err := l.Flush(bg); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// next returns the node whose turn it is.
func (s *site) next() *hybrid.Limiter {
	s.t.Helper()
	s.sync()
	s.turn++
	return s.nodes[s.turn%len(s.nodes)]
}

// first makes every node look the key up, as traffic would have: the very
// first check of a node is answered before it has heard of anybody.
func (s *site) first(key string, rule *limit.Rule) {
	for _, l := range s.nodes {
		l.AllowN(key, rule, rule.Limit()+1)
	}
}

// answers asks n times, the nodes taking turns, and draws what they say.
func (s *site) answers(key string, rule *limit.Rule, n int) string {
	s.t.Helper()
	s.first(key, rule)
	var b strings.Builder
	for range n {
		b.WriteByte("01"[bit(s.next().Allow(key, rule))])
	}
	return b.String()
}

func bit(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// advance moves everybody's clock.
func (s *site) advance(d time.Duration) {
	s.t.Helper()
	s.sync()
	now := s.clock.Advance(d)
	if s.redis != nil {
		s.redis.SetTime(time.Unix(0, int64(now)))
	}
}

func (s *site) want(key string, rule *limit.Rule, pattern string) {
	s.t.Helper()
	if got := s.answers(key, rule, len(pattern)); got != pattern {
		s.t.Errorf("%v: %s, want %s", rule, got, pattern)
	}
}

const fiveOfTwenty = "11111000000000000000"

// is_action_allowed(user, action, 60 s, 5): 20 calls at once.
func TestSeedRow1IsActionAllowed(t *testing.T) {
	for _, build := range []func(string, int64, time.Duration) (*limit.Rule, error){limit.SlidingWindow, limit.FixedWindow} {
		onSites(t, func(t *testing.T, s *site) {
			reply := limit.Must(build("reply", 5, time.Minute))
			s.want("laoqian", reply, fiveOfTwenty)
			// Another user, another action: counters of their own, even if
			// the parts joined look alike.
			s.want("somebody", reply, "111110")
			s.want("c", limit.Must(build("a:b", 5, time.Minute)), "111110")
			s.want("b:c", limit.Must(build("a", 5, time.Minute)), "111110")
			s.advance(2 * time.Minute)
			s.want("laoqian", reply, fiveOfTwenty)
		})
	}
}

// A funnel of capacity 10, 20 calls at once; then it leaks, whole units and
// fractions alike.
func TestSeedRow4Funnel(t *testing.T) {
	onSites(t, func(t *testing.T, s *site) {
		rule := limit.Must(limit.TokenBucket("reply", 1, 2*time.Second, 10))
		s.want("laoqian", rule, "11111111110000000000")
		s.advance(2 * time.Second)
		s.want("laoqian", rule, "10")
		// 10 × 0.7 s: steps that a counter of whole units would forget.
		got := 0
		for range 10 {
			s.advance(700 * time.Millisecond)
			got += bit(s.next().Allow("laoqian", rule))
		}
		if got != 3 {
			t.Errorf("%d admitted in 7 s at one per 2 s, want 3", got)
		}
	})
}

// CL.THROTTLE laoqian:reply 15 30 60.
func TestSeedRow6Throttle(t *testing.T) {
	onSites(t, func(t *testing.T, s *site) {
		rule := limit.Must(limit.TokenBucket("reply", 30, time.Minute, 16))
		s.first("laoqian", rule)
		for k := int64(1); k <= 16; k++ {
			res := s.next().Take("laoqian", rule, 1)
			reset := time.Duration(k) * 2 * time.Second
			if !res.Allowed || res.Limit != 16 || res.Remaining != 16-k || res.RetryAfter != 0 || off(res.ResetAfter, reset) {
				t.Errorf("call %d: %+v, want remaining %d, reset after %v", k, res, 16-k, reset)
			}
		}
		res := s.next().Take("laoqian", rule, 1)
		if res.Allowed || res.Remaining != 0 || off(res.RetryAfter, 2*time.Second) || off(res.ResetAfter, 32*time.Second) {
			t.Errorf("call 17: %+v", res)
		}
	})
}

// off tells whether a duration is not what it should be. Merged funnels are
// stated in microseconds on the wire, rounded up once per exchange.
func off(got, want time.Duration) bool { return (got - want).Abs() > 100*time.Microsecond }

// A fixed window counts per aligned window; twice the limit passes around a
// boundary, which is inherent in it.
func TestSeedRow7FixedWindow(t *testing.T) {
	onSites(t, func(t *testing.T, s *site) {
		rule := limit.Must(limit.FixedWindow("page", 5, time.Minute))
		s.advance(59 * time.Second)
		s.want("k", rule, "1111100")
		s.advance(time.Second) // 12:01:00, the next window
		s.want("k", rule, "1111100")
		s.advance(59 * time.Second)
		s.want("k", rule, "0")
	})
}

// One minute in 60 sub-windows of a second: no double burst at a boundary.
func TestSeedRow8SubWindows(t *testing.T) {
	onSites(t, func(t *testing.T, s *site) {
		rule := limit.Must(limit.SlidingWindowBuckets("login", 5, time.Minute, 60))
		s.advance(59 * time.Second)
		s.want("k", rule, "1111100")
		s.advance(time.Second)
		s.want("k", rule, "0")
		s.advance(58 * time.Second)
		s.want("k", rule, "0")
		s.advance(2 * time.Second) // a minute, and the second it may be off
		s.want("k", rule, "1111100")
	})
}

// Two windows with a smooth transition: the current one, and what has not left of the
// previous one.
func TestSeedRow9TwoWindows(t *testing.T) {
	onSites(t, func(t *testing.T, s *site) {
		rule := limit.Must(limit.SlidingWindowBuckets("smooth", 10, time.Minute, 1))
		s.advance(59 * time.Second)
		s.want("k", rule, "111111111100")
		s.advance(31 * time.Second)
		// Half of the next window has passed: half of the previous one counts.
		s.want("k", rule, "1111100")
		s.advance(30 * time.Second)
		// A window with 5: five more, not none, as summing two overlapping
		// counters would have it.
		s.want("k", rule, "1111100")
		s.advance(time.Minute - 1) // and none of them leaves too late
		s.want("k", rule, "1111100")
	})
}
