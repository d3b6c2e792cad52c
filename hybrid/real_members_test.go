package hybrid_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// awayFirst starts a server that cannot be reached through the proxy until it is
// healed.
func awayFirst(t *testing.T, fault func(*redistest.Proxy, bool)) (srv *redistest.Server, p *redistest.Proxy) {
	t.Helper()
	srv = redistest.Start(t)
	p, err := redistest.NewProxy(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	fault(p, true)
	return srv, p
}

// Ten limiters are made while Redis is away. They do not know each other;
// together they admit one limit all the same, and report it when Redis is back.
//
// Fault 71: a fleet that starts without Redis admits one limit.
func TestRealFleetStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*redistest.Proxy, bool){
		"closed port": (*redistest.Proxy).Refuse,
		"silent port": (*redistest.Proxy).BlackHole,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, p := awayFirst(t, fault)
			var nodes []*hybrid.Limiter
			total := 0
			for range 10 {
				l := newLimiter(t, dial(t, p.Addr()), hybrid.Options{ExpectedNodes: 10, MaxBackoff: 500 * time.Millisecond})
				total += admitted(l, "k", hundred, 200) // before it knows that Redis is away
				nodes = append(nodes, l)
			}
			eventually(t, "degraded", allModes(nodes, hybrid.Degraded))
			for _, l := range nodes {
				total += admitted(l, "k", hundred, 200)
			}
			if total != 100 {
				t.Errorf("the fleet has admitted %d of 100", total)
			}
			fault(p, false)
			eventually(t, "synced", allModes(nodes, hybrid.Synced))
			if got := totalIn(t, dial(t, srv.Addr()), counterKey(hundred, "k")); got != int64(total) {
				t.Errorf("Redis counts %d, admitted were %d", got, total)
			}
		})
	}
}

// Five processes are replaced one by one while Redis is away. Each new one takes
// its share anew, because it cannot know what the old one has admitted:
// L · (nodes + restarts) / nodes.
//
// Fault 71: replaced processes get a share each, not a limit each.
func TestRealProcessesReplacedWithoutRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p, err := redistest.NewProxy(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	const size = 5
	o := hybrid.Options{ExpectedNodes: size, MaxBackoff: 500 * time.Millisecond}
	nodes := realFleet(t, p.Addr(), size, o)
	p.Refuse(true)
	eventually(t, "degraded", allModes(nodes, hybrid.Degraded))
	total := 0
	for _, l := range nodes {
		total += admitted(l, "k", hundred, 200)
	}
	if total != 100 {
		t.Errorf("the fleet has admitted %d of 100", total)
	}
	over, cancel := context.WithCancel(bg)
	cancel()
	for _, old := range nodes {
		_ = old.Shutdown(over)
		l := newLimiter(t, dial(t, p.Addr()), o)
		total += admitted(l, "k", hundred, 200)
		eventually(t, "degraded", allModes([]*hybrid.Limiter{l}, hybrid.Degraded))
		total += admitted(l, "k", hundred, 200)
	}
	if want := 100 * (size + size) / size; total != want {
		t.Errorf("%d admitted, want %d", total, want)
	}
}

// A process and its copy (a virtual machine that was cloned, or restored while the
// original lives) go by one name and count the same numbers. Whatever they admit is
// booked, whichever reports first; they get to know of each other; and each leaves
// under its own name.
//
// Fault 77: two limiters under one name, and nothing vanishes.
func TestRealCopyOfAProcess(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := dial(t, srv.Addr())
	a := realNode(t, srv.Addr(), quick)
	var all books
	for i := range 20 {
		all.take(a, fmt.Sprint("key", i), 1)
	}
	flush(t, a)
	name := a.ID()
	b, err := hybrid.NewCopy(dial(t, srv.Addr()), quick, name, numbersOf(t, admin, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Shutdown(bg) })
	nodes := []*hybrid.Limiter{a, b}
	for range 100 {
		for i, l := range nodes {
			for k := range 20 {
				all.take(l, fmt.Sprint("key", k), int64(1+i))
			}
		}
		<-time.After(time.Millisecond)
	}
	for _, l := range nodes {
		flush(t, l)
		conserved(t, l, true)
	}
	all.match(t, admin)
	if a.ID() == b.ID() || a.Stats().Renames+b.Stats().Renames == 0 {
		t.Errorf("names %q and %q, renamed %d and %d times", a.ID(), b.ID(), a.Stats().Renames, b.Stats().Renames)
	}
	eventually(t, "they count each other", func() bool { return a.State().Nodes == 2 && b.State().Nodes == 2 })
	for _, l := range nodes {
		wantMode(t, l, hybrid.Synced)
		if live := admin.ZRange(bg, "hl:1:{0}:nodes:1", 0, -1).Val(); !slices.Contains(live, l.ID()) {
			t.Errorf("%q is not among the live nodes %q", l.ID(), live)
		}
		id := l.ID()
		if err := l.Shutdown(bg); err != nil {
			t.Error(err)
		}
		if live := admin.ZRange(bg, "hl:1:{0}:nodes:1", 0, -1).Val(); slices.Contains(live, id) {
			t.Errorf("%q has left, and is still among the live nodes", id)
		}
		for _, k := range admin.Keys(bg, "hl:1:{*}:node:"+id).Val() {
			if ttl := admin.PTTL(bg, k).Val(); ttl > time.Minute {
				t.Errorf("%s lives for %v after its node has left", k, ttl)
			}
		}
	}
}

// A copy that reports nothing learns from its heartbeats that the other does.
//
// Fault 77: a silent copy learns it by its heartbeat.
func TestRealSilentCopy(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := dial(t, srv.Addr())
	a := realNode(t, srv.Addr(), quick)
	a.Allow("k", longTen)
	flush(t, a)
	var seen happenings
	o := quick
	o.OnEvent = seen.add
	b, err := hybrid.NewCopy(dial(t, srv.Addr()), o, a.ID(), numbersOf(t, admin, a.ID()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Shutdown(bg) })
	a.Allow("k", longTen)
	flush(t, a)
	eventually(t, "it has another name", func() bool { return b.ID() != a.ID() && b.Stats().Renames == 1 })
	eventually(t, "it has told so", func() bool {
		list := seen.of(hybrid.EventRenamed)
		return len(list) == 1 && strings.Contains(list[0].Reason, a.ID()) && strings.Contains(list[0].Reason, b.ID())
	})
	eventually(t, "they count each other", func() bool { return a.State().Nodes == 2 && b.State().Nodes == 2 })
}

// numbersOf returns the latest number of a node in each shard, by its ledgers.
func numbersOf(t *testing.T, rdb *redis.Client, name string) map[int]int64 {
	t.Helper()
	out := map[int]int64{}
	for _, key := range rdb.Keys(bg, "hl:1:{*}:node:"+name).Val() {
		var shard int
		var seq int64
		if _, err := fmt.Sscanf(key, "hl:1:{%d}", &shard); err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		if _, err := fmt.Sscan(rdb.Get(bg, key).Val(), &seq); err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		out[shard] = seq
	}
	return out
}
