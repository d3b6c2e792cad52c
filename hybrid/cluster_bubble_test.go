package hybrid_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// cluster is two masters in a bubble, of which one hands slots to the other.
// The servers know nothing of it: what a master says of keys that it does not
// own is scripted here.
type cluster struct {
	t     *testing.T
	nodes [2]*miniredis.Miniredis
	nets  [2]*network

	mu     sync.Mutex
	state  map[string]moving // by hash tag
	told   map[string]int    // how often each word was said
	asking map[*server.Peer]bool
}

// moving says how far a tag is from where the client believes it to be.
type moving struct {
	to    int    // the node that has the keys, or gets them
	word  string // what the other one says: MOVED or ASK
	again int    // how often the one that has them says TRYAGAIN first
}

var clusterAddrs = []string{"10.0.0.1:7001", "10.0.0.2:7002"}

func (w *world) cluster() (*cluster, *redis.ClusterClient) {
	c := &cluster{t: w.t, state: map[string]moving{}, told: map[string]int{}, asking: map[*server.Peer]bool{}}
	for i := range c.nodes {
		m := miniredis.NewMiniRedis()
		w.t.Cleanup(m.Close)
		m.ClockTTL(true)
		first, err := m.Dial() // starts it
		if err != nil {
			w.t.Fatal(err)
		}
		first.Close()
		m.Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool { return c.answer(i, p, cmd, args) })
		c.nodes[i], c.nets[i] = m, &network{redis: m}
	}
	half := func(from, to, node int) redis.ClusterSlot {
		return redis.ClusterSlot{Start: from, End: to, Nodes: []redis.ClusterNode{{Addr: clusterAddrs[node]}}}
	}
	o := clientOptions("")
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: clusterAddrs,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{half(0, 8191, 0), half(8192, 16383, 1)}, nil
		},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return c.nets[slices.Index(clusterAddrs, addr)].dial(ctx, network, addr)
		},
		ContextTimeoutEnabled: o.ContextTimeoutEnabled, DialerRetries: o.DialerRetries, DisableIdentity: o.DisableIdentity,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	w.t.Cleanup(func() {
		rdb.Close()
		for _, n := range c.nets {
			n.sever()
		}
	})
	return c, rdb
}

// answer is called before a node executes a command, and reports whether it has
// been answered already.
func (c *cluster) answer(node int, p *server.Peer, cmd string, args []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cmd = strings.ToUpper(cmd)
	if cmd == "ASKING" {
		c.asking[p] = true
		p.WriteOK()
		return true
	}
	if cmd != "EVALSHA" && cmd != "EVAL" || len(args) < 3 {
		return false
	}
	asked := c.asking[p]
	delete(c.asking, p)
	m, ok := c.state[tagOf(args[2])]
	say := func(format string, a ...any) bool {
		text := fmt.Sprintf(format, a...)
		word, _, _ := strings.Cut(text, " ")
		c.told[word]++
		p.WriteError(text)
		return true
	}
	switch {
	case !ok:
		return false
	case node != m.to:
		return say("%s 1 %s", m.word, clusterAddrs[m.to])
	case m.word == "ASK" && !asked: // not yet its own
		return say("MOVED 1 %s", clusterAddrs[1-m.to])
	case m.again > 0:
		m.again--
		c.state[tagOf(args[2])] = m
		return say("TRYAGAIN Multiple keys request during rehashing of slot")
	}
	return false
}

func tagOf(key string) string {
	_, after, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(after, "}")
	return tag
}

// move takes the keys of a tag to the other node, and lets the nodes say so.
func (c *cluster) move(tag string, word string, again int) {
	c.t.Helper()
	from := -1
	keys := [][]string{c.nodes[0].Keys(), c.nodes[1].Keys()}
	for i, n := range c.nodes {
		for _, k := range keys[i] {
			if tagOf(k) != tag {
				continue
			}
			v, err := n.Get(k)
			if err != nil || from >= 0 && from != i {
				c.t.Fatalf("%s: %v, or on both nodes", k, err)
			}
			from = i
			to := c.nodes[1-i]
			if err := to.Set(k, v); err != nil {
				c.t.Fatal(err)
			}
			to.SetTTL(k, n.TTL(k))
			n.Del(k)
		}
	}
	if from < 0 {
		c.t.Fatalf("no keys of {%s}", tag)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state[tag] = moving{1 - from, word, again}
}

// Slots move to the other master of a cluster while their keys are in use.
// Pipelines carry keys that have moved beside others that have not.
//
// Fault 19: what is redirected or to be tried again is booked once, and the
// other keys of the pipeline do not notice.
func TestSlotsMove(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, rdb := w.cluster()
		const shards = 8
		l := newLimiter(t, rdb, hybrid.Options{Shards: shards})
		ks, err := redisstore.NewKeyspace("", shards)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int64{}
		round := func(rounds int) {
			for range rounds {
				for i := range 32 {
					key := fmt.Sprint("key", i)
					if l.Allow(key, longWindow) {
						want[key]++
					}
				}
				flush(t, l)
			}
		}
		time.Sleep(10 * time.Millisecond)
		round(3)
		for tag, m := range map[string]moving{"4": {0, "MOVED", 0}, "1": {0, "ASK", 0}, "2": {0, "MOVED", 1}, "3": {0, "ASK", 1}} {
			c.move(tag, m.word, m.again)
		}
		round(20)
		c.mu.Lock()
		for tag, m := range c.state { // what was importing is its own now
			m.word = "MOVED"
			c.state[tag] = m
		}
		c.mu.Unlock()
		round(10)
		time.Sleep(5 * time.Second)
		wantMode(t, l, hybrid.Synced)
		conserved(t, l, true)
		for key, units := range want {
			name, total := ks.CounterKey(longWindow, key), int64(0)
			for i, n := range c.nodes {
				if n.Exists(name) {
					admin := w.client(&network{}, func(o *redis.Options) { o.Dialer = c.nets[i].dial })
					total += totalIn(t, admin, name)
				}
			}
			if total != units {
				t.Errorf("%s: %d units are booked, %d were admitted", key, total, units)
			}
		}
		if s := l.Stats(); s.Losses != 0 || s.StateChanges != 1 {
			t.Errorf("a move was taken for a loss or an outage: %+v", s)
		}
		if c.told["MOVED"] < 20 || c.told["ASK"] < 20 || c.told["TRYAGAIN"] != 2 {
			t.Errorf("the nodes said %v", c.told)
		}
	})
}

// The masters of a cluster do not agree on the time. A new window goes by the clock of
// its own from the start, not only once the reconciler has looked at it.
func TestNewWindowsOnTwoMasters(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const ahead, width = 5 * time.Second, 10 * time.Second
		c, rdb := w.cluster()
		w.skewOf(c.nodes[1], ahead)
		const shards = 8
		l := newLimiter(t, rdb, hybrid.Options{Shards: shards, SyncInterval: time.Minute, HeartbeatInterval: time.Minute})
		time.Sleep(10 * time.Millisecond)
		for i := range 64 {
			l.Allow(fmt.Sprint("warm", i), longWindow)
		}
		flush(t, l) // it has heard of both clocks
		rule := limit.Must(limit.FixedWindow("w", 10, width))
		ask := func(key string, times int) (admitted int) {
			for range times {
				if l.Allow(key, rule) {
					admitted++
				}
			}
			return admitted
		}
		// A window of the first master ends in between, none of the other. Once in ten times
		// the reconciler looks meanwhile.
		for try := range 10 {
			time.Sleep(time.Until(time.Now().Truncate(width).Add(width + 7*time.Second)))
			before := l.Stats().Batches
			for i := range 16 {
				ask(fmt.Sprint("k", try, " ", i), 4)
			}
			time.Sleep(6 * time.Second)
			if l.Stats().Batches != before {
				continue
			}
			left := map[int]int{}
			for i := range 16 {
				left[ask(fmt.Sprint("k", try, " ", i), 20)]++
			}
			if left[10] < 2 || left[6] < 2 || left[10]+left[6] != 16 {
				t.Errorf("keys by how many units the window had left, want 10 or 6: %v", left)
			}
			return
		}
		t.Error("the reconciler looked each time")
	})
}
