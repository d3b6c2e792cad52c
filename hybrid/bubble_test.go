package hybrid_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// world is a Redis inside a synctest bubble, with nodes around it. Time is the
// bubble's: it stands still while anybody can run, so that an hour's outage
// takes milliseconds and "within 5 ms" is exact.
type world struct {
	t     *testing.T
	redis *miniredis.Miniredis
	admin *redis.Client // over a wire of its own, without faults
}

// node is a limiter, its client and the wires between the client and Redis.
type node struct {
	*hybrid.Limiter
	net *network
	rdb *redis.Client
}

func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Last of all, let go-redis' background dials come to their end.
		t.Cleanup(func() { time.Sleep(10 * time.Second) })
		w := &world{t: t, redis: miniredis.NewMiniRedis()}
		t.Cleanup(w.redis.Close)
		w.redis.ClockTTL(true) // keys expire by the bubble's time
		w.admin = w.client(new(network), nil)
		test(t, w)
	})
}

// client returns a client whose connections run over n. The address is never
// dialled; it must be an IP literal, because a look-up of a name would leave
// the bubble.
func (w *world) client(n *network, tune func(*redis.Options)) *redis.Client {
	n.redis = w.redis
	o := clientOptions("127.0.0.1:6379")
	o.Dialer = n.dial
	if tune != nil {
		tune(o)
	}
	c := redis.NewClient(o)
	w.t.Cleanup(func() {
		c.Close()
		n.sever() // go-redis forgets connections whose greeting was interrupted
	})
	return c
}

// node starts a limiter over the given network; nil means a sound one.
func (w *world) node(o hybrid.Options, n *network) *node {
	w.t.Helper()
	if n == nil {
		n = new(network)
	}
	rdb := w.client(n, nil)
	return &node{Limiter: newLimiter(w.t, rdb, o), net: n, rdb: rdb}
}

// synced starts a limiter and waits until it has heard from Redis.
func (w *world) synced(o hybrid.Options) *node {
	w.t.Helper()
	n := w.node(o, nil)
	time.Sleep(10 * time.Millisecond)
	wantMode(w.t, n.Limiter, hybrid.Synced)
	return n
}

// fleet starts nodes that know of each other.
func (w *world) fleet(size int, o hybrid.Options) (nodes []*node) {
	w.t.Helper()
	for range size {
		nodes = append(nodes, w.synced(o))
	}
	time.Sleep(1100 * time.Millisecond) // one heartbeat each
	for _, n := range nodes {
		if s := n.State(); s.Nodes != size {
			w.t.Fatalf("%v, want %d nodes", s, size)
		}
	}
	return nodes
}

// used returns the units that Redis counts.
func (w *world) used(key string, rule *limit.Rule) int64 {
	w.t.Helper()
	return usedIn(w.t, w.admin, key, rule)
}

func (w *world) wantUsed(key string, rule *limit.Rule, want int64) {
	w.t.Helper()
	if got := w.used(key, rule); got != want {
		w.t.Fatalf("Redis counts %d units of %q, want %d", got, key, want)
	}
}

// total returns the units that a long window holds in Redis, debt included.
func (w *world) total(key string, rule *limit.Rule) int64 {
	w.t.Helper()
	return totalIn(w.t, w.admin, counterKey(rule, key))
}

// wantTotal checks total: unlike wantUsed it sees units beyond the limit.
func (w *world) wantTotal(key string, rule *limit.Rule, want int64) {
	w.t.Helper()
	if got := w.total(key, rule); got != want {
		w.t.Fatalf("Redis has booked %d units of %q, want %d", got, key, want)
	}
}

// gatedClock is the system's clock, whose reader can be made to wait. It stops
// the reconciler at a chosen point, so that a race can be played out.
type gatedClock struct {
	mu   sync.Mutex
	left int           // readings until the one that waits
	gate chan struct{} // nil: nobody waits
}

func (c *gatedClock) Now() time.Duration {
	c.mu.Lock()
	c.left--
	gate := c.gate
	if c.left != 0 {
		gate = nil
	}
	c.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return clock.System{}.Now()
}

// stopAt makes the n-th reading from now on wait for release.
func (c *gatedClock) stopAt(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.gate = n, make(chan struct{})
}

func (c *gatedClock) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.gate)
	c.gate = nil
}

// skew lets Redis' clock run ahead of the bubble's by d, as after a failover
// to a machine whose clock is off. To be called once.
func (w *world) skew(d time.Duration) {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	set := func() { w.redis.SetTime(time.Now().Add(d)) }
	set()
	go func() {
		for ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			set()
		}
	}()
}

// network is the way from one client to Redis, and the faults on it. The zero
// network (with redis set) is sound.
type network struct {
	redis *miniredis.Miniredis

	mu      sync.Mutex
	wires   map[*wire]struct{}
	refuse  bool        // dials are refused
	hang    bool        // dials get no answer
	swallow bool        // what is written gets no answer
	drop    int         // batches to be lost on their way to Redis
	cut     int         // batches whose replies are to be lost
	loss    func() bool // decides which replies are lost, of heartbeats too; nil: none
	tear    int         // of the next batch only so many bytes arrive
	lag     time.Duration
	stalled time.Time     // nothing arrives before
	trip    time.Duration // of a packet there and back: to connect and to ask takes so long
	seen    traffic
	dialing int // now
}

// traffic is what a network has seen so far.
type traffic struct {
	dials int
	peak  int // most dials at a time
	sent  int // writes of the client
	torn  int // of those: broken off
}

func (n *network) traffic() traffic {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen
}

func (n *network) set(f func(n *network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
}

// sever breaks every connection.
func (n *network) sever() {
	n.set(func(n *network) {
		for w := range n.wires {
			w.close()
		}
	})
}

// down breaks every connection and refuses new ones.
func (n *network) down() {
	n.set(func(n *network) { n.refuse = true })
	n.sever()
}

func (n *network) up() {
	n.set(func(n *network) { n.refuse, n.hang, n.swallow = false, false, false })
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	refuse, hang, trip := n.refuse, n.hang, n.trip
	n.seen.dials++
	n.dialing++
	n.seen.peak = max(n.seen.peak, n.dialing)
	n.mu.Unlock()
	defer n.set(func(n *network) { n.dialing-- })
	if trip > 0 {
		time.Sleep(trip)
	}
	switch {
	case hang: // as when SYN packets vanish
		<-ctx.Done()
		return nil, ctx.Err()
	case refuse:
		return nil, errRefused
	}
	server, err := n.redis.Dial()
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	w := &wire{net: n, far: far, server: server}
	w.more.L = &w.mu
	n.set(func(n *network) {
		if n.wires == nil {
			n.wires = map[*wire]struct{}{}
		}
		n.wires[w] = struct{}{}
	})
	go w.forward()
	go w.collect()
	go w.backward()
	return eofConn{near}, nil
}

// eofConn makes a closed pipe look as a closed TCP connection does.
type eofConn struct{ net.Conn }

func (c eofConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == io.ErrClosedPipe {
		err = io.EOF
	}
	return n, err
}

func (c eofConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == io.ErrClosedPipe {
		err = syscall.EPIPE
	}
	return n, err
}

// wire is one connection. Replies are buffered without bound between Redis and
// the client, as a kernel would do: a pipe has no buffer, and a client that
// writes a long pipeline before it reads would wait for ever.
type wire struct {
	net    *network
	far    net.Conn // the client's other end
	server net.Conn

	mu    sync.Mutex // protects what follows
	more  sync.Cond
	buf   []byte
	mute  bool // throw replies away
	ended bool
}

func (w *wire) close() {
	w.far.Close()
	w.server.Close()
}

// forward carries what the client writes. One write of go-redis is one chunk.
func (w *wire) forward() {
	defer w.close()
	defer w.net.set(func(n *network) { delete(n.wires, w) })
	b := make([]byte, 256<<10)
	for {
		k, err := w.far.Read(b)
		if err != nil {
			return
		}
		f, part := w.net.judge(b[:k])
		switch f {
		case swallowed:
			continue
		case dropped:
			return
		case cutOff:
			w.mu.Lock()
			w.mute = true
			w.mu.Unlock()
			if _, err := w.server.Write(b[:part]); err != nil {
				return
			}
			// In the bubble time passes only when all is quiet: a moment
			// later Redis has executed everything that is complete.
			time.Sleep(time.Millisecond)
			return
		}
		if _, err := w.server.Write(b[:k]); err != nil {
			return
		}
	}
}

// collect takes what Redis answers.
func (w *wire) collect() {
	b := make([]byte, 64<<10)
	for {
		k, err := w.server.Read(b)
		w.mu.Lock()
		if !w.mute {
			w.buf = append(w.buf, b[:k]...)
		}
		w.ended = w.ended || err != nil
		w.mu.Unlock()
		w.more.Signal()
		if err != nil {
			return
		}
	}
}

// backward hands it to the client.
func (w *wire) backward() {
	defer w.close()
	for {
		w.mu.Lock()
		for len(w.buf) == 0 && !w.ended {
			w.more.Wait()
		}
		b := w.buf
		w.buf = nil
		w.mu.Unlock()
		if len(b) == 0 {
			return
		}
		if _, err := w.far.Write(b); err != nil {
			return
		}
	}
}

type fate int

const (
	passed fate = iota
	swallowed
	dropped
	cutOff
)

// judge decides what becomes of one chunk, and how much of it arrives. Only batches carry names of
// counters, whose mark is ":k:"; heartbeats and greetings pass uncounted.
func (n *network) judge(chunk []byte) (f fate, part int) {
	n.mu.Lock()
	n.seen.sent++
	part = len(chunk)
	lag, batch := max(n.lag+n.trip, time.Until(n.stalled)), bytes.Contains(chunk, []byte(":k:"))
	switch {
	case n.swallow:
		f = swallowed
	case n.loss != nil && bytes.Contains(chunk, []byte("eval")) && n.loss(): // not the greeting after the last loss
		f = cutOff
	case batch && n.drop > 0:
		n.drop--
		f = dropped
	case batch && n.cut > 0:
		n.cut--
		f = cutOff
	case batch && n.tear > 0:
		f, part = cutOff, min(n.tear, len(chunk))
		n.tear = 0
		n.seen.torn++
	}
	n.mu.Unlock()
	if lag > 0 {
		time.Sleep(lag)
	}
	return f, part
}
