package hybrid_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/remote"
)

// faraway dials servers over wires on which a round trip takes so long.
type faraway struct {
	t      testing.TB
	secret bool // with TLS

	mu    sync.Mutex
	trip  time.Duration
	wires map[string]*redistest.Far // by the address of the server
	conf  map[string]*tls.Config
}

func newFaraway(t testing.TB, trip time.Duration, secret bool) *faraway {
	return &faraway{t: t, secret: secret, trip: trip, wires: map[string]*redistest.Far{}, conf: map[string]*tls.Config{}}
}

// wire returns the wire to a server.
func (f *faraway) wire(addr string) (*redistest.Far, *tls.Config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wires[addr] == nil {
		target := addr
		if f.secret {
			s, err := redistest.NewSecret(addr)
			if err != nil {
				f.t.Error(err)
				return nil, nil
			}
			f.t.Cleanup(s.Close)
			target, f.conf[addr] = s.Addr(), s.Config()
		}
		w, err := redistest.NewFar(target, f.trip)
		if err != nil {
			f.t.Error(err)
			return nil, nil
		}
		f.t.Cleanup(w.Close)
		f.wires[addr] = w
	}
	return f.wires[addr], f.conf[addr]
}

// dial is the Dialer of a client. It does what that of go-redis does with a DialTimeout.
func (f *faraway) dial(timeout time.Duration) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		w, conf := f.wire(addr)
		if w == nil {
			return nil, net.ErrClosed
		}
		d := net.Dialer{Timeout: timeout}
		if conf == nil {
			return d.DialContext(ctx, network, w.Addr())
		}
		return tls.DialWithDialer(&d, network, w.Addr(), conf)
	}
}

// With default options a node is synchronised although Redis is 150 ms away and each connection needs a TLS
// handshake.
//
// Fault 93: distance, with TLS.
// Fault 111: a start is no outage.
func TestRealFarAwayIsReached(t *testing.T) {
	t.Parallel()
	const trip = 150 * time.Millisecond
	far := newFaraway(t, trip, true)
	for name, open := range map[string]func(t *testing.T) redis.UniversalClient{
		"server": func(t *testing.T) redis.UniversalClient {
			o := hybrid.RedisOptions(redistest.Start(t).Addr())
			o.Dialer = far.dial(o.DialTimeout)
			return redis.NewClient(o)
		},
		"sentinel": func(t *testing.T) redis.UniversalClient {
			o := hybrid.RedisFailoverOptions(redistest.GroupName, redistest.StartReplicaSet(t).SentinelAddrs()...)
			o.Dialer = far.dial(o.DialTimeout)
			return redis.NewFailoverClient(o)
		},
		"cluster": func(t *testing.T) redis.UniversalClient {
			o := hybrid.RedisClusterOptions(redistest.StartCluster(t).Addrs()...)
			o.Dialer = far.dial(o.DialTimeout)
			return redis.NewClusterClient(o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := open(t)
			t.Cleanup(func() { rdb.Close() })
			log := new(changes)
			l := newLimiter(t, rdb, hybrid.Options{OnStateChange: log.add})
			if !l.Allow("k", longWindow) {
				t.Error("refused before the first answer")
			}
			eventually(t, "synced", func() bool { return len(log.modes()) > 0 && l.State().Mode == hybrid.Synced })
			// A busy machine needs long for the handshakes with Sentinels and with each of several masters.
			if modes := log.modes(); name == "server" && modes[0] != hybrid.Synced {
				t.Errorf("modes %v: the start is no outage", modes)
			}
			eventually(t, "it hears notices", func() bool { return l.State().NoticesDown == "" && l.Figures().Heartbeats > 2 })
			if err := l.Reset(context.Background(), "k", longWindow); err != nil {
				t.Error(err)
			}
			before := slices.Clone(log.modes())
			eventually(t, "eight heartbeats", func() bool { return l.Figures().Heartbeats > 8 })
			if now := log.modes(); len(now) != len(before) {
				t.Errorf("modes %v: it does not stay synced", now)
			}
		})
	}
}

// Fault 93: the same for package remote, whose calls are bounded by their callers' patience: the connection
// is made meanwhile.
func TestRealFarAwayForRemote(t *testing.T) {
	t.Parallel()
	far := newFaraway(t, 150*time.Millisecond, true)
	o := hybrid.RedisOptions(redistest.Start(t).Addr())
	o.Dialer = far.dial(o.DialTimeout)
	r, err := remote.New(client(t, o), remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "an answer", func() bool {
		_, err := r.Take(context.Background(), "k", longWindow, 1)
		return err == nil
	})
}
