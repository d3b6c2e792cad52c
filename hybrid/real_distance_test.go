package hybrid_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
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

// Fault 93: with default options a node is synchronised although Redis is 150 ms away
// and each connection needs a TLS handshake.
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
			rdb := open(t)
			t.Cleanup(func() { rdb.Close() })
			began := time.Now()
			log := new(changes)
			l := newLimiter(t, rdb, hybrid.Options{OnStateChange: log.add})
			// Handshakes take long on a machine that is busy with other tests: the log says how long.
			eventually(t, "synced", func() bool { return l.State().Mode == hybrid.Synced })
			t.Logf("synced after %v", time.Since(began))
			eventually(t, "it hears notices", func() bool { return l.State().Deaf == "" && l.Stats().Heartbeats > 2 })
			l.Allow("k", longWindow)
			if err := l.Reset(context.Background(), "k", longWindow); err != nil {
				t.Error(err)
			}
			before := slices.Clone(log.modes())
			eventually(t, "eight heartbeats", func() bool { return l.Stats().Heartbeats > 8 })
			if now := log.modes(); len(now) != len(before) {
				t.Errorf("modes %v: it does not stay synced", now)
			}
		})
	}
}

// Fault 111: a start is no outage although Redis is 80 or 150 ms away, whatever the fallback.
func TestRealStartFarAway(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, trip := range []time.Duration{80 * time.Millisecond, 150 * time.Millisecond} {
		for _, secret := range []bool{false, true} {
			far := newFaraway(t, trip, secret)
			for _, policy := range fallbacks {
				t.Run(fmt.Sprint(trip, " TLS ", secret, " ", policy), func(t *testing.T) {
					t.Parallel()
					o := hybrid.RedisOptions(srv.Addr())
					o.Dialer = far.dial(o.DialTimeout)
					log := new(changes)
					l := newLimiter(t, client(t, o), hybrid.Options{Fallback: policy, OnStateChange: log.add})
					if !l.Allow("k", longWindow) {
						t.Error("refused before the first answer")
					}
					eventually(t, "synced", func() bool { return len(log.modes()) > 0 })
					if modes := log.modes(); modes[0] != hybrid.Synced {
						t.Errorf("modes %v: the start is no outage", modes)
					}
				})
			}
		}
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

// Fault 93: far away, exact by the distance, no unit is pending for longer than it takes to collect it and
// to hear of it; a stall of 0.3 s is no outage, and a server that hangs is.
func TestRealFarAwayIsNotOverloaded(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for windows to pass")
	}
	t.Parallel()
	for _, trip := range []time.Duration{20 * time.Millisecond, 80 * time.Millisecond, 150 * time.Millisecond} {
		t.Run(trip.String(), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			wire, err := redistest.NewFar(srv.Addr(), trip)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(wire.Close)
			rule := limit.Must(limit.SlidingWindow("far", 20, 10*time.Second))
			var nodes []*hybrid.Limiter
			var logs []*changes
			for range 2 {
				log := new(changes)
				nodes, logs = append(nodes, newLimiter(t, client(t, hybrid.RedisOptions(wire.Addr())), hybrid.Options{OnStateChange: log.add})), append(logs, log)
			}
			for _, l := range nodes {
				eventually(t, "both know each other", func() bool { return l.State().Mode == hybrid.Synced && l.State().Nodes == 2 })
			}
			failed, were := nodes[0].Stats().Failures, len(logs[0].modes()) // what it took to learn how far it is
			const keys = 300
			var admitted, oldest = 0, time.Duration(0)
			for began := time.Now(); time.Since(began) < 13*time.Second; { // the second window begins after 10 s
				for range 2 * 10 * keys / 100 { // ten times a second and node, a hundredth of a second's
					key := fmt.Sprint("key", time.Now().UnixNano()/1000%keys)
					if nodes[time.Now().UnixNano()/1_000_000%2].Allow(key, rule) && time.Since(began) < 9*time.Second {
						admitted++
					}
				}
				for _, l := range nodes {
					// Not while the connections are made that the load needs, a script is loaded, and all keys are new.
					if time.Since(began) > 3*time.Second {
						oldest = max(oldest, l.Stats().OldestPending)
					}
				}
				<-time.After(10 * time.Millisecond)
			}
			// The simulator holds this to 50 ms. A busy machine collects late, and stands still.
			if most := time.Second + 100*time.Millisecond + 2*trip + time.Second; oldest > most {
				t.Errorf("a unit was pending for %v, at most %v", oldest, most)
			}
			if most := 20 * keys * 29 / 20; admitted > most {
				t.Errorf("%d units admitted in a window, at most %d", admitted, most)
			}
			t.Logf("%d units of %d admitted, pending for %v at most", admitted, 20*keys, oldest)
			// A busy machine stands still for longer than a time-out now and then: one exchange in ten.
			if s := nodes[0].Stats(); s.Failures-failed > (s.Batches+s.Heartbeats)/10 {
				t.Errorf("%d failures, after %d before: %v", s.Failures, failed, s.FailuresBy)
			}
			wire.Stall(300 * time.Millisecond)
			<-time.After(2 * time.Second)
			if modes := logs[0].modes()[were:]; slices.Contains(modes, hybrid.Degraded) {
				t.Errorf("modes %v after a stall of 0.3 s", modes)
			}
			wire.Hang(true)
			nodes[0].Allow("one more", longWindow)
			eventually(t, "the server hangs", func() bool { return nodes[0].State().Mode == hybrid.Degraded })
			wire.Hang(false)
			eventually(t, "it goes on", func() bool { return nodes[0].State().Mode == hybrid.Synced })
		})
	}
}
