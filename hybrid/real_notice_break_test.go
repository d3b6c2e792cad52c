package hybrid_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// subscribers returns the ids of the connections with subscriptions.
func subscribers(t testing.TB, srv *redistest.Server) (ids []string) {
	t.Helper()
	list, err := srv.Do("CLIENT", "LIST", "TYPE", "pubsub")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(list.(string)) {
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
	}
	return ids
}

// What ends a subscription ends nothing else: the nodes subscribe again by themselves, and the only
// changes of state are those of the outage, where there is one.
//
// Fault 91: the connection of the subscription is killed, its buffer is full, Redis is restarted.
// Fault 120: other versions count output buffers in another way.
func TestRealSubscriptionBroken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks func(t *testing.T, srv *redistest.Server, channel string)
		outage bool
	}{
		"killed": {breaks: func(t *testing.T, srv *redistest.Server, _ string) {
			if n, err := srv.Do("CLIENT", "KILL", "TYPE", "pubsub"); err != nil || n != int64(2) {
				t.Fatalf("%v connections killed, %v", n, err)
			}
		}},
		"output buffer": {breaks: func(t *testing.T, srv *redistest.Server, channel string) {
			if _, err := srv.Do("CONFIG", "SET", "client-output-buffer-limit", "pubsub 64kb 0 0"); err != nil {
				t.Fatal(err)
			}
			before := subscribers(t, srv)
			// 128 messages of 8 kB, before Redis writes any of them: one of 16 kB or more does not count
			// against the limit of Valkey 9.1, which refers to it instead of copying it.
			const publish = "local n for i = 1, 128 do n = redis.call('PUBLISH', ARGV[1], string.rep('x', 8192)) end return n"
			if n, err := srv.Do("EVAL", publish, "0", channel); err != nil || n != int64(2) {
				t.Fatalf("published to %v, %v", n, err)
			}
			eventually(t, "Redis has closed both", func() bool {
				return !slices.ContainsFunc(subscribers(t, srv), func(id string) bool { return slices.Contains(before, id) })
			})
		}},
		"restart": {outage: true, breaks: func(t *testing.T, srv *redistest.Server, _ string) {
			srv.Kill()
			if err := srv.Restart(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			nodes := realFleet(t, srv.Addr(), 2, hybrid.Options{})
			a, b := nodes[0], nodes[1]
			admin := dial(t, srv.Addr())
			listening(t, admin, 2)
			noticesArrive(t, a, b)
			c.breaks(t, srv, noticeChannel(t, admin))
			noticesArrive(t, a, b)
			noticesArrive(t, b, a)
			for _, l := range nodes {
				eventually(t, "synced, with notices", func() bool { s := l.State(); return s.Mode == hybrid.Synced && s.NoticesDown == "" })
				if n := l.Figures().StateChanges; n != 1 && !c.outage || n > 4 {
					t.Errorf("%d changes of state: %+v", n, l.State())
				}
			}
		})
	}
}

// noticesArrive waits until notices go from the first node of a crew to all others, and back.
func (c *crew) noticesArrive() {
	c.t.Helper()
	last := len(c.nodes) - 1
	noticesArrive(c.t, c.nodes[0], c.nodes[1:]...)
	noticesArrive(c.t, c.nodes[last], c.nodes[:last]...)
	for i, l := range c.nodes {
		eventually(c.t, "notices work", func() bool { return l.State().NoticesDown == "" })
		c.diary.note("node %d: %+v", i, l.State())
	}
}

// A Ring has its keys on two servers, and the channel on one of them.
//
// Fault 91: notices in a Ring.
func TestRealNoticesInARing(t *testing.T) {
	t.Parallel()
	x, y := redistest.Start(t), redistest.Start(t)
	var clients []redis.UniversalClient
	for range 3 {
		clients = append(clients, redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"x": x.Addr(), "y": y.Addr()}, ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true,
		}))
	}
	c := newCrew(t, hybrid.Options{}, clients...)
	c.noticesArrive()
	for range 10 { // keys of both servers
		noticesArrive(t, c.nodes[1], c.nodes[0], c.nodes[2])
	}
	for i, l := range c.nodes {
		if s := l.Figures(); s.StateChanges != 1 {
			t.Errorf("node %d: %+v, %+v", i, l.State(), s)
		}
	}
}
