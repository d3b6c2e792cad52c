package hybrid_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
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
				received[i] = l.Figures().NoticesHeard
			}
			exhausts(t, from, key, hourFive)
		}
		for i, l := range to {
			if l.Figures().NoticesHeard == received[i] {
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
			var told atomic.Int64
			o := hybrid.Options{HeartbeatInterval: 100 * time.Millisecond, Logger: slog.New(&log), OnEvent: func(e hybrid.Event) {
				if e.Kind == hybrid.EventNoticesDown {
					told.Add(1)
				}
			}}
			as := clientOptions(srv.Addr())
			as.Username, as.Password = "app", "secret"
			l := newLimiter(t, client(t, as), o)
			peer := realNode(t, srv.Addr(), hybrid.Options{})
			eventually(t, "noperm is said", func() bool { return l.State().NoticesDown == "noperm" })
			exhausts(t, l, "k", hourFive)
			before := l.Figures().Heartbeats
			eventually(t, "ten heartbeats more", func() bool { return l.Figures().Heartbeats > before+10 })
			flush(t, l)
			if got := totalIn(t, admin, counterKey(hourFive, "k")); got != 5 {
				t.Errorf("%d units are booked, want 5", got)
			}
			said := strings.Count(log.text(), "notices of other nodes do not arrive: noperm")
			if s := l.State(); s.Mode != hybrid.Synced || s.NoticesDown != "noperm" || l.Figures().StateChanges != 1 || told.Load() != 1 || said != 1 {
				t.Errorf("%+v, %d events, %d of these lines:\n%s", s, told.Load(), said, log.text())
			}
			if s := peer.State(); s.NoticesDown != "" {
				t.Errorf("the peer: %+v", s)
			}
			user(grant)
			eventually(t, "it hears again", func() bool { return l.State().NoticesDown == "" })
			noticesArrive(t, l, peer)
			noticesArrive(t, peer, l)
			if s := l.State(); s.Mode != hybrid.Synced || s.NoticesDown != "" || l.Figures().StateChanges != 1 || told.Load() != 1 {
				t.Errorf("%+v, %d events:\n%s", s, told.Load(), log.text())
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
			before := a.Figures().Heartbeats
			eventually(t, "five heartbeats", func() bool { return a.Figures().Heartbeats > before+5 })
			if s := a.State(); s.Mode != hybrid.Synced || s.NoticesDown != "" || a.Figures().StateChanges != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}
