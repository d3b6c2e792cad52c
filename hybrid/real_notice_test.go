package hybrid_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

var hourFive = limit.Must(limit.SlidingWindow("five", 5, time.Hour))

// keyspace is that of a single server, with the default prefix.
func keyspace() redisstore.Keyspace {
	ks, err := redisstore.NewKeyspace("", 1)
	if err != nil {
		panic(err)
	}
	return ks
}

// noticeChannel returns the channel for notices, which the first heartbeat has made.
func noticeChannel(t testing.TB, rdb redis.UniversalClient) string {
	t.Helper()
	id, err := rdb.Get(bg, keyspace().ChannelKey()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return keyspace().NoticeChannel(id)
}

// listening waits until so many nodes have subscribed to the notices of a database, all at this
// server.
func listening(t testing.TB, rdb redis.UniversalClient, nodes int) {
	t.Helper()
	eventually(t, fmt.Sprint(nodes, " nodes listen"), func() bool {
		id, err := rdb.Get(bg, keyspace().ChannelKey()).Result()
		if err != nil {
			return false
		}
		channel := keyspace().NoticeChannel(id)
		n, err := rdb.PubSubNumSub(bg, channel).Result()
		return err == nil && n[channel] == int64(nodes)
	})
}

// exhausts uses up a key at a node.
func exhausts(t testing.TB, l *hybrid.Limiter, key string, rule *limit.Rule) {
	t.Helper()
	if got, res := l.TakeAtMost(key, rule, rule.Limit()); got != rule.Limit() {
		t.Fatalf("%d units of %s admitted, want %d: %+v, %v", got, key, rule.Limit(), res, l.State())
	}
}

// noticesArrive waits until what one node says is obeyed by the others. Each try is a new key; one
// whose notice was lost is given up after a second.
func noticesArrive(t testing.TB, from *hybrid.Limiter, to ...*hybrid.Limiter) {
	t.Helper()
	var tried time.Time
	var key string
	received := make([]uint64, len(to))
	eventually(t, "notices arrive", func() bool {
		if time.Since(tried) > time.Second {
			tried, key = time.Now(), fmt.Sprint("try-", tries.Add(1))
			for i, l := range to {
				received[i] = l.Stats().NoticesHeard
			}
			exhausts(t, from, key, hourFive)
		}
		for i, l := range to {
			if l.Stats().NoticesHeard == received[i] {
				return false
			}
		}
		for _, l := range to { // the first check of this key: it knows nothing else of it
			if l.Take(key, hourFive, 1).Source != limit.SourceNotice {
				tried = time.Time{} // what was heard is of an earlier key
				return false
			}
		}
		return true
	})
}

var tries atomic.Int64 // keys of noticesArrive

// Ten nodes share a limit of 5. Once Redis has booked five units of five nodes, and the others
// have heard that, no node admits any more: the total is exact.
//
// Fault 89: with notices that arrive, small limits hold.
func TestRealSmallLimit(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	const size = 10
	nodes := realFleet(t, srv.Addr(), size, hybrid.Options{})
	admin := dial(t, srv.Addr())
	listening(t, admin, size)
	for _, rule := range []*limit.Rule{hourFive, limit.Must(limit.Funnel("bucket", 5, 5, time.Hour))} {
		for i, l := range nodes[:5] {
			if !l.Allow("k", rule) {
				t.Fatalf("unit %d is refused", i+1)
			}
			flush(t, l)
		}
		eventually(t, "all have heard", func() bool {
			for _, l := range nodes[5:] {
				if l.Stats().NoticesHeard == 0 {
					return false
				}
			}
			return true
		})
		for i, l := range nodes {
			eventually(t, fmt.Sprint("node ", i, " refuses"), func() bool { return l.Peek("k", rule).Remaining == 0 })
			if res := l.Take("k", rule, 1); res.Allowed || res.RetryAfter <= 0 {
				t.Errorf("node %d: %+v", i, res)
			}
		}
	}
	for i, l := range nodes {
		if s := l.Stats(); s.StateChanges != 1 || l.State().Deaf != "" {
			t.Errorf("node %d: %+v, %+v", i, l.State(), s)
		}
	}
}

// The same while all are asked all the time. Each node may admit as many units as it is asked for from
// when the fifth was admitted until it hears that, and no more.
//
// Fault 89: what small limits admit until all have heard.
func TestRealSmallLimitUnderLoad(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	const size, pause = 10, 50 * time.Millisecond
	nodes := realFleet(t, srv.Addr(), size, hybrid.Options{})
	listening(t, dial(t, srv.Addr()), size)
	var total, after atomic.Int64
	var fifth, all atomic.Pointer[time.Time] // when it was admitted, and when all had heard
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, l := range nodes {
		wg.Go(func() {
			<-time.After(time.Duration(i) * pause / size)
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for ; ; <-tick.C {
				select {
				case <-stop:
					return
				default:
				}
				late := all.Load() != nil
				if l.Allow("k", hourFive) {
					if n := total.Add(1); n == hourFive.Limit() {
						now := time.Now()
						fifth.Store(&now)
					}
					if late {
						after.Add(1)
					}
				}
			}
		})
	}
	// The node that tells it does not hear it.
	eventually(t, "all have heard", func() bool {
		received := 0
		for _, l := range nodes {
			if l.Stats().NoticesHeard > 0 || l.Stats().NoticesSent > 0 {
				received++
			}
		}
		return received == size
	})
	now := time.Now()
	<-time.After(10 * time.Millisecond) // hearing is counted before it is obeyed
	all.Store(&now)
	<-time.After(3 * time.Second) // three lags
	close(stop)
	wg.Wait()
	took := now.Sub(*fifth.Load())
	t.Logf("%d units admitted; all had heard %v after the fifth", total.Load(), took)
	if most := hourFive.Limit() + (size-1)*int64((took+10*time.Millisecond)/pause+1); total.Load() > most {
		t.Errorf("%d units admitted, want %d at most", total.Load(), most)
	}
	if after.Load() > 0 {
		t.Errorf("%d units were admitted after all had heard", after.Load())
	}
}

// Pub/Sub knows no databases. Limiters with another database, prefix or number of shards share no
// limit with this one, and obey none of its notices.
//
// Fault 89: a notice of a key of another database.
func TestRealNoticesStayAtHome(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, b := realNode(t, srv.Addr(), hybrid.Options{}), realNode(t, srv.Addr(), hybrid.Options{})
	db5 := clientOptions(srv.Addr())
	db5.DB = 5
	others := map[string]*hybrid.Limiter{
		"database 5":     newLimiter(t, client(t, db5), hybrid.Options{}),
		"another prefix": newLimiter(t, dial(t, srv.Addr()), hybrid.Options{KeyPrefix: "other"}),
		"other shards":   newLimiter(t, dial(t, srv.Addr()), hybrid.Options{Shards: 4}),
	}
	listening(t, dial(t, srv.Addr()), 2)
	noticesArrive(t, a, b)
	exhausts(t, a, "k", hourFive)
	for _, l := range others { // all that was published before the last of these has arrived
		before := l.Stats().Heartbeats
		eventually(t, "two heartbeats", func() bool { return l.State().Mode == hybrid.Synced && l.Stats().Heartbeats > before+2 })
	}
	if res := b.Take("k", hourFive, 1); res.Allowed {
		t.Errorf("the same limiter: %+v", res)
	}
	for name, l := range others {
		if res := l.Take("k", hourFive, 1); !res.Allowed {
			t.Errorf("%s: %+v", name, res)
		}
		if n := l.Stats().NoticesHeard; n > 0 {
			t.Errorf("%s: %d notices heard", name, n)
		}
	}
}

// A user without a permission that notices need: units are booked, the node is synced, and says so
// once. It comes back by itself when the permission is given.
//
// Fault 91: no permission to publish, to subscribe, or for the channel.
func TestRealNoticesNotPermitted(t *testing.T) {
	t.Parallel()
	for lack, grant := range map[string]string{"-publish": "+publish", "-subscribe": "+subscribe", "resetchannels": "&hl:*"} {
		t.Run(lack, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			admin := dial(t, srv.Addr())
			user := func(rules ...string) {
				t.Helper()
				if _, err := srv.Do(append([]string{"ACL", "SETUSER", "app"}, rules...)...); err != nil {
					t.Fatal(err)
				}
			}
			user("on", ">secret", "~*", "&*", "+@all", lack)
			var log logbook
			var deaf atomic.Int64
			o := hybrid.Options{HeartbeatInterval: 100 * time.Millisecond, Logger: slog.New(&log), OnEvent: func(e hybrid.Event) {
				if e.Kind == hybrid.EventDeaf {
					deaf.Add(1)
				}
			}}
			as := clientOptions(srv.Addr())
			as.Username, as.Password = "app", "secret"
			l := newLimiter(t, client(t, as), o)
			peer := realNode(t, srv.Addr(), hybrid.Options{})
			eventually(t, "noperm is said", func() bool { return l.State().Deaf == "noperm" })
			exhausts(t, l, "k", hourFive)
			before := l.Stats().Heartbeats
			eventually(t, "ten heartbeats more", func() bool { return l.Stats().Heartbeats > before+10 })
			flush(t, l)
			if got := totalIn(t, admin, counterKey(hourFive, "k")); got != 5 {
				t.Errorf("%d units are booked, want 5", got)
			}
			said := strings.Count(log.text(), "notices of other nodes do not arrive: noperm")
			if s := l.State(); s.Mode != hybrid.Synced || s.Deaf != "noperm" || l.Stats().StateChanges != 1 || deaf.Load() != 1 || said != 1 {
				t.Errorf("%+v, %d events, %d of these lines:\n%s", s, deaf.Load(), said, log.text())
			}
			if s := peer.State(); s.Deaf != "" {
				t.Errorf("the peer: %+v", s)
			}
			user(grant)
			eventually(t, "it hears again", func() bool { return l.State().Deaf == "" })
			noticesArrive(t, l, peer)
			noticesArrive(t, peer, l)
			if s := l.State(); s.Mode != hybrid.Synced || s.Deaf != "" || l.Stats().StateChanges != 1 || deaf.Load() != 1 {
				t.Errorf("%+v, %d events:\n%s", s, deaf.Load(), log.text())
			}
		})
	}
}

// encrypted puts TLS in front of a server, and returns where, and how to trust it.
func encrypted(t testing.TB, srv *redistest.Server) (addr string, trust *tls.Config) {
	t.Helper()
	s, err := redistest.NewSecret(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Addr(), s.Config()
}

// Notices arrive with both protocols, and through TLS, in both directions.
func TestRealNoticesOnEachWire(t *testing.T) {
	t.Parallel()
	for name, tune := range map[string]func(*testing.T, *redistest.Server, *redis.Options){
		"RESP2": func(_ *testing.T, _ *redistest.Server, o *redis.Options) { o.Protocol = 2 },
		"RESP3": func(_ *testing.T, _ *redistest.Server, o *redis.Options) { o.Protocol = 3 },
		"TLS":   func(t *testing.T, srv *redistest.Server, o *redis.Options) { o.Addr, o.TLSConfig = encrypted(t, srv) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			o := hybrid.RedisOptions(srv.Addr()) // of the README
			tune(t, srv, o)
			a, b := newLimiter(t, client(t, o), hybrid.Options{}), realNode(t, srv.Addr(), hybrid.Options{})
			listening(t, dial(t, srv.Addr()), 2)
			noticesArrive(t, a, b)
			noticesArrive(t, b, a)
			before := a.Stats().Heartbeats
			eventually(t, "five heartbeats", func() bool { return a.Stats().Heartbeats > before+5 })
			if s := a.State(); s.Mode != hybrid.Synced || s.Deaf != "" || a.Stats().StateChanges != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}
